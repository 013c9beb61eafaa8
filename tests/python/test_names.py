"""The names that programs written for the earlier library use, for all that is built."""

import numpy as np
import pytest

import everyo as eo

NAMES = """
Tensor tensor as_tensor is_tensor Device device DTYPES dtype_name no_grad enable_grad set_grad_enabled
abs add arange avg_pool2d clip concatenate conv2d divide dot exp eye flatten full linspace log log_softmax matmul max max_pool2d mean
min multiply negative normal one_hot ones ones_like power rand randn relu reshape sigmoid softmax sqrt stack subtract sum tanh
transpose uniform variance zeros zeros_like
Module Parameter Sequential Linear Conv2D MaxPool2D AvgPool2D BatchNorm1D BatchNorm2D LayerNorm Dropout Flatten ReLU Sigmoid Tanh
Softmax LogSoftmax MODULE_REGISTRY register_module get_module_class initialization
Loss MSELoss MAELoss BCELoss BCEWithLogitsLoss CrossEntropyLoss mse_loss mae_loss binary_cross_entropy cross_entropy
Optimizer SGD Adam
Dataset ArrayDataset TransformDataset Subset DataLoader load_csv_dataset train_test_split random_split stratified_split StandardScaler
MinMaxScaler standardize normalize min_max_scale one_hot_encode shuffle_arrays
Trainer History Callback EarlyStopping ModelCheckpoint ProgressLogger CSVLogger LearningRateScheduler accuracy binary_accuracy
mean_absolute_error mean_squared_error r2_score confusion_matrix get_metric
EveryOError EveryOShapeError EveryODeviceError EveryODTypeError EveryOGradientError EveryOSerializationError EveryOConfigurationError
EveryOBackendError EveryOCudaError
save load
nn optim data training datasets distributed serialization core
""".split()


def test_names_are_there():
    assert [name for name in NAMES if not hasattr(eo, name)] == []
    assert [name for name in NAMES if name not in eo.__all__] == []


@pytest.mark.parametrize("module", [eo, eo.nn, eo.optim, eo.data, eo.training, eo.serialization, eo.distributed])
def test_all_lists_what_is_there_once(module):
    assert len(set(module.__all__)) == len(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_short_names_are_the_modules_own():
    for module in (eo.nn, eo.optim, eo.data, eo.training, eo.serialization):
        assert all(getattr(eo, name) is getattr(module, name) for name in module.__all__)


def test_exceptions_have_one_base():
    errors = [getattr(eo, name) for name in NAMES if name.startswith("EveryO") and name.endswith("Error")]
    assert len(errors) == 9 and all(issubclass(error, eo.EveryOError) for error in errors)
    assert issubclass(eo.EveryOCudaError, eo.EveryOBackendError) and eo.EveryOError.__base__ is Exception


def test_tensor_is_a_function_of_tensors_arguments():
    value = eo.tensor([1, 2], dtype="float64", device="cpu", requires_grad=True, name="pair")
    assert isinstance(value, eo.Tensor) and value.dtype == "float64" and value.requires_grad and value.name == "pair"
    assert eo.tensor(np.array([1, 2])).dtype == "float32"
