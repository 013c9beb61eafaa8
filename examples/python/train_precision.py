# Trains a network on handwritten digits with products in float16, the loss scaled by hand, clipping between. Prints:
#
#     epoch 1  loss 1.7146  scale 131072  steps left out 7
#     epoch 3  loss 0.2261  scale 131072  steps left out 7
#     epoch 6  loss 0.0849  scale 131072  steps left out 7
#     held-out rows right: 98.61 %
#     module  op                 policy  operands                   results  calls
#     0       cast               follow  float32                    float16  3
#     0       linear_activation  low     float16, float16, float16  float16  1
#     2       cast               follow  float32                    float16  2
#     2       linear_activation  low     float16, float16, float16  float16  1
#     4       cast               follow  float32                    float16  2
#     4       linear             low     float16, float16, float16  float16  1
#             argmax             follow  float16                    int64    1
#
# In bfloat16 the same loop needs no scaler.

import everyo as eo
from everyo import nn


def main() -> None:
    x, y = eo.datasets.load_handwritten_digits()  # [1797, 64], [1797]
    x_train, x_test, y_train, y_test = eo.train_test_split(x, y, test_size=360 / len(x), seed=0)
    loader = eo.DataLoader(eo.ArrayDataset(x_train, y_train), batch_size=32, shuffle=True, seed=0)
    model = nn.Sequential(
        nn.Linear(64, 128, seed=0), nn.ReLU(), nn.Linear(128, 64, seed=1), nn.ReLU(), nn.Linear(64, 10, seed=2)
    )
    optimizer = eo.Adam(model.parameters(), lr=2e-3)
    scaler = eo.GradScaler(2.0**24)  # too large: the first steps are left out, until it fits

    for epoch in range(1, 7):
        total = 0.0
        for features, labels in loader:  # [32, 64], [32]
            optimizer.zero_grad()
            with eo.autocast():  # the forward and the loss; backward and the step are outside
                loss = nn.cross_entropy(model(features), labels)
            scaler.backward(loss)
            scaler.unscale_(optimizer)
            eo.clip_grad_norm(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
            total += loss.item() * len(labels)
        if epoch == 1 or epoch % 3 == 0:
            mean = total / len(x_train)
            print(f"epoch {epoch}  loss {mean:.4f}  scale {scaler.get_scale():.0f}  steps left out {scaler.skipped_steps}")

    def held_out() -> None:
        with eo.autocast(), eo.no_grad():
            logits = model(eo.Tensor(x_test))  # [360, 10]
        print(f"held-out rows right: {100 * eo.accuracy(logits, y_test):.2f} %")

    print(eo.precision_report(held_out), end="")  # what ran in which dtype


if __name__ == "__main__":
    main()
