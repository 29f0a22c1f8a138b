# SPDX-License-Identifier: Apache-2.0
"""A small real use of each library of docs/programs.md: python3 -m phlox tests/libraries.py NAME. What it prints, losses
above all, is the same with PyTorch but for the last digits."""
import os
import pickle
import random
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def seed():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def train(model, loss_of, steps=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.3f}")


def images(size=64):
    return torch.randn(4, 3, size, size), torch.arange(4) % 3


def rows():
    return DataLoader(TensorDataset(torch.randn(32, 8), torch.arange(32) % 3), batch_size=8)


def layers():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def safetensors(folder):
    from safetensors import safe_open
    from safetensors.torch import load, load_file, load_model, save, save_file, save_model
    tensors = {name: torch.arange(6).reshape(2, 3).to(getattr(torch, name)) for name in
               "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()}
    path = f"{folder}/x.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    for there in (load_file(path), load(save(tensors))):
        assert all(torch.equal(there[name], tensor) and there[name].dtype == tensor.dtype for name, tensor in tensors.items())
    with safe_open(path, framework="pt", device="cpu") as file:
        assert file.metadata() == {"format": "pt"}
        assert torch.equal(file.get_slice("float32")[:, 1:], tensors["float32"][:, 1:])
    one, other = layers(), layers()
    save_model(one, path)
    assert load_model(other, path) == (set(), [])
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters()))
    if torch.cuda.is_available():
        assert load_file(path, device="cuda:0")["0.weight"].is_cuda


def torchvision(folder):
    from PIL import Image
    from torchvision import datasets, models, ops, transforms
    from torchvision.transforms import v2
    from torchvision.utils import make_grid
    noise = Image.fromarray(np.random.randint(0, 255, (72, 80, 3), dtype=np.uint8))
    change = transforms.Compose([
        transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.ColorJitter(0.1, 0.1, 0.1, 0.1), transforms.RandomRotation(10),
        transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.2] * 3), transforms.RandomErasing(1.0)])
    newer = v2.Compose([v2.ToImage(), v2.RandomResizedCrop(64), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)])
    print(change(noise).shape, newer(noise).shape, transforms.functional.affine(torch.rand(3, 8, 8), 10, [1, 1], 1.1, [2]).shape)
    print(make_grid(torch.rand(4, 3, 8, 8)).shape, ops.box_iou(torch.tensor([[0., 0, 2, 2]]), torch.tensor([[1., 1, 3, 3]])))
    loader = DataLoader(datasets.FakeData(4, (3, 64, 64), 3, change), batch_size=4)
    for name in "resnet18 vgg11 vit_b_16 mobilenet_v3_small efficientnet_b0 densenet121 swin_t convnext_tiny shufflenet_v2_x0_5 squeezenet1_0 regnet_y_400mf".split():
        seed()
        print(name)
        model = getattr(models, name)(num_classes=3, **({"image_size": 64} if name.startswith("vit") else {}))
        train(model, lambda model: sum(F.cross_entropy(model(x), y) for x, y in loader), 1)


def torchmetrics(folder):
    from torchmetrics import MetricCollection, classification as c, image, regression as r, text
    classes = MetricCollection({kind.__name__: kind(3) for kind in (
        c.MulticlassAccuracy, c.MulticlassF1Score, c.MulticlassAUROC, c.MulticlassConfusionMatrix, c.MulticlassPrecision, c.MulticlassRecall,
        c.MulticlassAveragePrecision, c.MulticlassCohenKappa, c.MulticlassMatthewsCorrCoef, c.MulticlassCalibrationError, c.MulticlassJaccardIndex)})
    numbers = [r.MeanSquaredError(), r.MeanAbsoluteError(), r.R2Score(), r.PearsonCorrCoef(), r.SpearmanCorrCoef(), r.ExplainedVariance(), r.KendallRankCorrCoef()]
    for _ in range(4):
        given, wanted = torch.randn(20, 3).softmax(-1), torch.randint(3, (20,))
        classes(given, wanted)
        for metric in numbers:
            metric.update(given[:, 0], given[:, 1])
    for name, value in [*classes.compute().items(), *((type(metric).__name__, metric.compute()) for metric in numbers)]:
        print(name, [round(x, 3) for x in value.flatten().tolist()])
    assert pickle.loads(pickle.dumps(classes)).compute()["MulticlassAUROC"] == classes.compute()["MulticlassAUROC"]
    binary = MetricCollection([c.BinaryAccuracy(), c.BinaryAUROC(), c.BinaryROC(thresholds=5), c.BinaryStatScores()])
    print(binary(torch.rand(30), torch.randint(2, (30,))))
    x, y = torch.rand(2, 2, 3, 32, 32)
    print(image.PeakSignalNoiseRatio(data_range=1.0)(x, y), image.StructuralSimilarityIndexMeasure(data_range=1.0)(x, y))
    print(text.Perplexity()(torch.randn(2, 5, 7), torch.randint(7, (2, 5))))


def timm(folder):
    import timm
    from timm.data import Mixup, create_transform
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import ModelEmaV3, accuracy, dispatch_clip_grad
    for name, size in (("resnet18", 64), ("efficientnet_b0", 64), ("vit_tiny_patch16_224", 224), ("convnext_atto", 64), ("mobilenetv3_small_100", 64)):
        seed()
        print(name)
        model = timm.create_model(name, num_classes=3)
        optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-4, weight_decay=0.05)
        schedule, average = CosineLRScheduler(optimizer, t_initial=3), ModelEmaV3(model)
        x, y = Mixup(num_classes=3)(*images(size))
        for epoch in range(2):
            loss = SoftTargetCrossEntropy()(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            dispatch_clip_grad(model.parameters(), 1.0)
            optimizer.step()
            schedule.step(epoch)
            average.update(model)
            print(f"loss {loss.item():.3f}")
        print(accuracy(model.eval()(x), y.argmax(1), topk=(1, 2)))
    print([tuple(features.shape) for features in timm.create_model("resnet18", features_only=True)(images()[0])])
    print(create_transform(64, is_training=True, auto_augment="rand-m9-mstd0.5"))


def transformers(folder):
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    ids = torch.randint(50, (2, 12))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    small = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    for kind, config in ((GPT2LMHeadModel, GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=64, **ends)),
                         (LlamaForCausalLM, LlamaConfig(**small, num_key_value_heads=2, **ends)), (BertForMaskedLM, BertConfig(**small))):
        for attention in ("sdpa", "eager"):
            seed()
            config._attn_implementation = attention
            model = kind(config)
            print(kind.__name__, attention, sum(p.numel() for p in model.parameters()))
            train(model, lambda model: model(input_ids=ids, attention_mask=mask, labels=ids).loss)
            model.eval()
            if kind is not BertForMaskedLM:
                print(model.generate(ids[1:], max_new_tokens=5, do_sample=False).tolist())
                print(model.generate(ids[1:], max_new_tokens=5, num_beams=2, do_sample=False).tolist())
                print(model.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=True, top_k=5, top_p=0.9).shape)
            model.save_pretrained(folder)
            torch.testing.assert_close(kind.from_pretrained(folder).eval()(ids).logits, model(ids).logits)


def accelerate(folder):
    from accelerate import Accelerator
    accelerator, model = Accelerator(cpu=True, gradient_accumulation_steps=2), layers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9 ** step)
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, rows(), schedule)
    for x, y in data:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        print(f"loss {accelerator.gather_for_metrics(loss.detach()).mean().item():.3f}")
    accelerator.save_state(folder)
    accelerator.load_state(folder)
    accelerator.save_model(model, folder)
    accelerator.unwrap_model(model)


class Digits(nn.Sequential):
    def __init__(self, width=32):
        super().__init__(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10))


def skorch(folder):
    from sklearn.datasets import load_digits
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from skorch import NeuralNetClassifier
    from skorch.callbacks import EarlyStopping, LRScheduler
    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32)
    net = NeuralNetClassifier(Digits, criterion=nn.CrossEntropyLoss, max_epochs=4, lr=0.1, iterator_train__shuffle=True,
                              callbacks=[EarlyStopping(), LRScheduler("StepLR", step_size=2)], verbose=0)
    print(make_pipeline(StandardScaler(), net).fit(x, y).score(x, y), [round(float(loss), 3) for loss in net.history[:, "train_loss"]])
    print(GridSearchCV(net, {"lr": [0.01, 0.1], "module__width": [16]}, cv=2).fit(x / 16, y).best_params_)
    assert (pickle.loads(pickle.dumps(net)).predict(x) == net.predict(x)).all()
    net.save_params(f_params=f"{folder}/p.pt", f_optimizer=f"{folder}/o.pt")
    net.load_params(f_params=f"{folder}/p.pt", f_optimizer=f"{folder}/o.pt")


def lightning(folder):
    import lightning as L
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

    class Model(L.LightningModule):
        def __init__(self, rate=0.1):
            super().__init__()
            self.save_hyperparameters()
            self.layers = layers()

        def loss(self, batch):
            return F.cross_entropy(self.layers(batch[0]), batch[1])

        def training_step(self, batch, index):
            loss = self.loss(batch)
            self.log("train", loss, prog_bar=True)
            print(f"loss {loss.item():.3f}")
            return loss

        def validation_step(self, batch, index):
            self.log("valid", self.loss(batch))

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), self.hparams.rate)
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}

    data = rows()
    trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, default_root_dir=folder, gradient_clip_val=1.0, enable_progress_bar=False,
                        callbacks=[ModelCheckpoint(monitor="valid", dirpath=folder), EarlyStopping("valid")])
    trainer.fit(Model(), data, data)
    again = Model.load_from_checkpoint(trainer.checkpoint_callback.best_model_path)
    print(trainer.validate(again, data), again.hparams)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    seed()
    with tempfile.TemporaryDirectory() as there:
        globals()[sys.argv[1]](there)
