# Trains a network on handwritten digits, writes it as an ONNX file and runs that in ONNX Runtime. Prints:
#
#     input float32 ('batch', 64)
#     output float32 ('batch', 10)
#     largest difference below 1e-5: True
#     held-out rows classed the same: 360 of 360
#
# Needs ONNX Runtime: pip install onnxruntime.


import pathlib
import tempfile

import everyo as eo
from everyo import nn


def main() -> None:
    x, y = eo.datasets.load_handwritten_digits()  # [1797, 64], [1797]
    x_train, x_test, y_train, _ = eo.train_test_split(x, y, test_size=360 / len(x), seed=0)
    net = nn.Sequential(nn.Linear(64, 32, seed=0), nn.ReLU(), nn.Linear(32, 10, seed=1))
    trainer = eo.Trainer(net, eo.Adam(net.parameters(), lr=2e-3), nn.CrossEntropyLoss())
    train = eo.DataLoader(eo.ArrayDataset(x_train, y_train), batch_size=32, shuffle=True, seed=0)
    trainer.fit(train, epochs=5, verbose=False)

    net.eval()
    with tempfile.TemporaryDirectory() as folder:
        path = eo.export_onnx(net, pathlib.Path(folder) / "digits.onnx", input_shape=(1, 64), check=True)
        served = eo.OnnxModel(path)
        for name, dtype, shape in served.inputs + served.outputs:
            print(name, dtype, shape)
        agreement = eo.compare_onnx(net, path, [x_test[:1], x_test[:7]])["output"]
        print("largest difference below 1e-5:", agreement.relative < 1e-5)
        there = eo.run_onnx(path, x_test)  # [360, 10]
    with eo.no_grad():
        here = net(eo.tensor(x_test)).numpy()
    print("held-out rows classed the same:", (here.argmax(1) == there.argmax(1)).sum(), "of", len(x_test))


if __name__ == "__main__":
    main()
