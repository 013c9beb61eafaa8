#pragma once
// What a program linked against libeveryo may see. Everything else in the library is hidden.
#define EVERYO_API [[gnu::visibility("default")]]
