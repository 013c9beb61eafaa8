#include <fmt/format.h>

#include "common.h"

// The library's checks of its own promises.
namespace everyo::python {
namespace {

nb::dict python_of(const verify::Outcome& outcome) {
  nb::dict dict;
  dict["requirement"] = outcome.requirement;
  dict["what"] = outcome.what;
  dict["columns"] = outcome.columns;
  dict["measured"] = outcome.measured;
  dict["reference"] = outcome.figure.reference;
  dict["tolerance"] = outcome.figure.tolerance;
  dict["reason"] = outcome.figure.reason;
  dict["passed"] = outcome.good();
  dict["error"] = outcome.error;
  return dict;
}

}  // namespace

void bind_verify(nb::module_& m) {
  m.def(
      "verify_topics", [] { return verify::topics(); }, "Topics of verify().");
  m.def(
      "verify",
      [](std::string_view topic, bool prove) {
        nb::list outcomes;
        for (const verify::Check& check : verify::checks(topic)) {
          if (PyErr_CheckSignals() != 0) throw nb::python_error();  // Ctrl-C between checks, which may take seconds
          verify::Outcome outcome;
          {
            const nb::gil_scoped_release release;
            outcome = verify::run(check, {.prove = prove});
          }
          outcomes.append(python_of(outcome));
        }
        return outcomes;
      },
      "topic"_a, nb::kw_only(), "prove"_a = false,
      nb::sig("def verify(topic: str, *, prove: bool = False) -> list[dict[str, typing.Any]]"),
      "Checks what the library promises, here and now: each with its requirement, figures and whether it passed. "
      "`prove` also puts in each check's fault, which it must find.");
}

}  // namespace everyo::python
