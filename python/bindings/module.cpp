#include "state.h"

NB_MODULE(_core, m) {
  using namespace everyo::python;
  nb::set_leak_warnings(false);  // a thread that never comes back holds objects at the end; a library does not print
  m.doc() = "The native part of everyo: tensors, ops, autograd, optimizers, files.";
  m.attr("__version__") = EVERYO_VERSION;
  bind_errors(m);
  nb::class_<PyTensor> tensor = bind_tensor(m);
  bind_dlpack(m, tensor);
  bind_arithmetic(m, tensor);
  bind_ops(m, tensor);
  bind_creation(m);
  bind_layers(m);
  bind_autograd(m, tensor);
  bind_random(m);
  bind_optim(m);
  bind_nn(m);
  bind_io(m);
  bind_state(m);
  bind_train(m);
  bind_data(m);
  bind_precision(m);
  bind_profile(m);
  bind_verify(m);
  bind_distributed(m);
  bind_spawn(m);
  bind_data_parallel(m);
  bind_onnx(m);
  bind_logging();
}
