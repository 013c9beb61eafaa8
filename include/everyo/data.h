#pragma once
// Data sets and the loader: what is read, from files of which formats, and how it comes to a training step.
#include "everyo/data/arrays.h"
#include "everyo/data/dataset.h"
#include "everyo/data/loader.h"
#include "everyo/data/packed.h"
#include "everyo/data/synthetic.h"
#include "everyo/data/text.h"
#include "everyo/data/transform.h"
