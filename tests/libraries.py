# SPDX-License-Identifier: Apache-2.0
"""Small realistic uses of each library in docs/reference/programs.md: python3 -m phlox tests/libraries.py NAME. The output, in particular the losses, equals
PyTorch's except for the last digits."""
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


def device_types():
    return ["cpu"] + ["cuda"] * torch.cuda.is_available()


def assert_close(name, first, other):
    torch.testing.assert_close(torch.as_tensor(other).cpu(), torch.as_tensor(first).cpu(), rtol=2e-3, atol=2e-3, msg=lambda text: f"{name}: {text}")


def check_devices(name, model, x):
    """Results and gradients on a device equal those on the CPU."""
    found = []
    for device_type in device_types():
        model.zero_grad()
        y = model.to(device_type)(x.to(device_type))
        y.square().mean().backward()
        found.append([y.detach(), *(p.grad.norm() for p in model.parameters() if p.grad is not None)])
    for other in found[1:]:
        for one, same in zip(found[0], other):
            assert_close(name, one, same)


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
    from torchvision import datasets, models, ops, transforms, tv_tensors
    from torchvision.transforms import v2
    from torchvision.utils import make_grid
    noise = Image.fromarray(np.random.randint(0, 255, (72, 80, 3), dtype=np.uint8))
    change = transforms.Compose([
        transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.ColorJitter(0.1, 0.1, 0.1, 0.1), transforms.RandomRotation(10),
        transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.2] * 3), transforms.RandomErasing(1.0)])
    newer = v2.Compose([v2.ToImage(), v2.RandomResizedCrop(64), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)])
    print(change(noise).shape, newer(noise).shape, transforms.functional.affine(torch.rand(3, 8, 8), 10, [1, 1], 1.1, [2]).shape)
    print(make_grid(torch.rand(4, 3, 8, 8)).shape, ops.box_iou(torch.tensor([[0., 0, 2, 2]]), torch.tensor([[1., 1, 3, 3]])))
    boxes = torch.tensor([[0., 0, 4, 4], [1, 1, 5, 5], [10, 10, 12, 14]])
    print(ops.generalized_box_iou(boxes, boxes), ops.distance_box_iou(boxes, boxes), ops.complete_box_iou_loss(boxes, boxes + 1), ops.box_area(boxes))
    print(ops.box_convert(boxes, "xyxy", "cxcywh"), ops.clip_boxes_to_image(boxes, (11, 11)), ops.remove_small_boxes(boxes, 4.5))
    print(ops.masks_to_boxes(torch.eye(5).unsqueeze(0).bool()), ops.sigmoid_focal_loss(boxes, (boxes > 2).float(), reduction="mean"))
    x, parts = torch.rand(2, 8, 16, 16), (ops.SqueezeExcitation(8, 2), ops.Conv2dNormActivation(8, 8), ops.DropBlock2d(0.2, 3), ops.StochasticDepth(0.5, "row"))
    print([round(float(part(x).mean()), 3) for part in parts], round(float(ops.MLP(16, [8, 4])(x).std()), 3), ops.FrozenBatchNorm2d(8)(x).shape)
    pyramid = ops.FeaturePyramidNetwork([8, 16], 4)(dict(a=x, b=torch.rand(2, 16, 8, 8)))
    print({name: (tuple(level.shape), round(float(level.std()), 3)) for name, level in pyramid.items()})
    objects = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(16, 16))
    for change_both in (v2.RandomAffine(10, (0.1, 0.1)), v2.Resize((24, 20)), v2.RandomHorizontalFlip(1.0), v2.CenterCrop(8), v2.Pad(2)):
        picture, moved = change_both(tv_tensors.Image(torch.rand(3, 16, 16)), objects)
        print(type(change_both).__name__, tuple(picture.shape), round(float(picture.mean()), 3), type(moved).__name__, [round(x, 2) for x in moved.flatten().tolist()])
    for mix in (v2.MixUp(num_classes=3), v2.CutMix(num_classes=3)):
        picture, label = mix(torch.rand(4, 3, 8, 8), torch.arange(4) % 3)
        print(type(mix).__name__, round(float(picture.mean()), 3), [round(x, 3) for x in label.flatten().tolist()])
    for tune in (v2.GaussianBlur(3), v2.ColorJitter(0.2, 0.2, 0.2, 0.1), v2.RandomGrayscale(1.0), v2.RandomInvert(1.0), v2.RandomAdjustSharpness(2, 1.0), v2.RandomAutocontrast(1.0),
                 v2.RandomPosterize(3, 1.0), v2.RandomEqualize(1.0), v2.TrivialAugmentWide(), v2.RandAugment(), v2.ElasticTransform(5.0, 1.0)):
        print(type(tune).__name__, round(float(tune(torch.randint(0, 255, (3, 16, 16), dtype=torch.uint8)).float().mean()), 1))
    loader = DataLoader(datasets.FakeData(4, (3, 64, 64), 3, change), batch_size=4)
    for name in "resnet18 vgg11 vit_b_16 mobilenet_v3_small efficientnet_b0 densenet121 swin_t convnext_tiny shufflenet_v2_x0_5 squeezenet1_0 regnet_y_400mf".split():
        seed()
        print(name)
        model = getattr(models, name)(num_classes=3, **({"image_size": 64} if name.startswith("vit") else {}))
        train(model, lambda model: sum(F.cross_entropy(model(x), y) for x, y in loader), 1)
    for name in ("resnet18", "swin_t", "mobilenet_v3_small"):
        check_devices(name, getattr(models, name)(num_classes=3).eval(), images()[0])


def torchmetrics(folder):
    import torchmetrics
    from torchmetrics import MetricCollection, classification as c, clustering, image, regression as r, retrieval, segmentation, text
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
    print(image.UniversalImageQualityIndex()(x, y), image.SpectralAngleMapper()(x, y), image.TotalVariation()(x))
    print(clustering.CalinskiHarabaszScore()(torch.randn(20, 4), torch.arange(20) % 3), retrieval.RetrievalMAP()(torch.rand(12), torch.randint(2, (12,)), torch.arange(12) // 4))
    print(segmentation.MeanIoU(num_classes=3, per_class=True, input_format="index")(torch.randint(3, (2, 8, 8)), torch.randint(3, (2, 8, 8))), text.WordErrorRate()(["a b c"], ["a x c"]), text.BLEUScore()(["the cat sat here now"], [["the cat sat there now"]]))
    several = torchmetrics.wrappers.BootStrapper(r.MeanSquaredError(), num_bootstraps=3)
    several.update(torch.rand(10), torch.rand(10))
    print({name: round(float(value), 3) for name, value in several.compute().items()})
    tracker = torchmetrics.wrappers.MetricTracker(c.BinaryAccuracy())
    for _ in range(3):
        tracker.increment()
        tracker.update(torch.rand(30), torch.randint(2, (30,)))
    print(tracker.best_metric(return_step=True), tracker.compute_all())
    given, wanted = torch.randn(40, 3).softmax(-1), torch.randint(3, (40,))
    want = classes.clone()(given, wanted)
    for device_type in device_types():
        moved = classes.clone().to(device_type)
        moved.reset()
        for name, value in moved(given.to(device_type), wanted.to(device_type)).items():
            assert value.device.type == device_type
            assert_close(name, want[name], value)


def timm(folder):
    import timm
    from timm.data import Mixup, create_transform
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import ModelEmaV3, accuracy, dispatch_clip_grad
    for name, size, kind in (("resnet18", 64, "adamw"), ("efficientnet_b0", 64, "rmsprop"), ("vit_tiny_patch16_224", 224, "lamb"), ("convnext_atto", 64, "lion"),
                             ("mobilenetv3_small_100", 64, "sgd"), ("regnetx_002", 64, "adamp"), ("ghostnet_050", 64, "rmsproptf"),
                             ("resnetv2_50", 64, "lars"), ("poolformer_s12", 64, "adafactor"), ("mobilevit_xxs", 64, "madgrad")):
        seed()
        print(name, kind)
        model = timm.create_model(name, num_classes=3)
        optimizer = create_optimizer_v2(model, opt=kind, lr=1e-4, weight_decay=0.05)
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
    for name in ("resnet18", "convnext_atto"):
        check_devices(name, timm.create_model(name, num_classes=3).eval(), images()[0])
    print([tuple(features.shape) for features in timm.create_model("resnet18", features_only=True)(images()[0])])
    print(create_transform(64, is_training=True, auto_augment="rand-m9-mstd0.5"))


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids).logits


def trainer(folder, device_type, model, ids):
    """transformers.Trainer with evaluation, checkpoints and a resumed run."""
    from transformers import PrinterCallback, Trainer, TrainingArguments
    rows = [{"input_ids": row, "labels": row} for row in ids.repeat(8, 1)]
    size = 4 // min(4, torch.cuda.device_count()) if device_type == "cuda" else 4  # per device; all devices are used
    given = TrainingArguments(output_dir=f"{folder}/{device_type}", per_device_train_batch_size=size, num_train_epochs=2, learning_rate=1e-3, warmup_steps=1, logging_steps=2, save_steps=4, report_to=[],
                              use_cpu=device_type == "cpu", eval_strategy="epoch", seed=3, disable_tqdm=True, gradient_accumulation_steps=1)
    one, again = (Trainer(model=model, args=given, train_dataset=rows, eval_dataset=rows[:4]) for _ in range(2))
    for each in one, again:
        each.remove_callback(PrinterCallback)
    one.train()
    seen = [round(entry["loss"], 3) for entry in one.state.log_history if "loss" in entry]
    again.train(resume_from_checkpoint=f"{folder}/{device_type}/checkpoint-4")
    return seen, round(again.evaluate()["eval_loss"], 3), again.state.global_step


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
            check_devices(kind.__name__, Logits(model), ids)
            model.cpu().save_pretrained(folder)
            torch.testing.assert_close(kind.from_pretrained(folder).eval()(ids).logits, model(ids).logits)
    for device_type in device_types():
        seed()
        print(trainer(folder, device_type, GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **ends)), ids))


def accelerate(folder):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    for device_type in device_types():
        AcceleratorState._reset_state(reset_partial_state=True)
        seed()
        accelerator, model = Accelerator(cpu=device_type == "cpu", gradient_accumulation_steps=2, project_dir=folder), layers()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9 ** step)
        model, optimizer, data, schedule = accelerator.prepare(model, optimizer, rows(), schedule)
        assert next(model.parameters()).device.type == accelerator.device.type == device_type
        for x, y in data:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            accelerator.print(f"loss {accelerator.gather_for_metrics(loss.detach()).mean().item():.3f}")
        accelerator.save_state(folder)
        was = [p.detach().clone() for p in model.parameters()]
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        accelerator.load_state(folder)
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), was))
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
    from skorch import NeuralNetClassifier, NeuralNetRegressor
    from skorch.callbacks import EarlyStopping, LRScheduler
    from skorch.dataset import ValidSplit
    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32)
    net = NeuralNetClassifier(Digits, criterion=nn.CrossEntropyLoss, max_epochs=4, lr=0.1, iterator_train__shuffle=True,
                              callbacks=[EarlyStopping(), LRScheduler("StepLR", step_size=2)], verbose=0)
    print(make_pipeline(StandardScaler(), net).fit(x, y).score(x, y), [round(float(loss), 3) for loss in net.history[:, "train_loss"]])
    print(GridSearchCV(net, {"lr": [0.01, 0.1], "module__width": [16]}, cv=2).fit(x / 16, y).best_params_)
    assert (pickle.loads(pickle.dumps(net)).predict(x) == net.predict(x)).all()
    for device_type in device_types():
        seed()
        there = NeuralNetClassifier(Digits, criterion=nn.CrossEntropyLoss, module__width=16, max_epochs=3, lr=0.1, device=device_type, verbose=0).fit(x / 16, y)
        assert there.module_[0].weight.device.type == device_type and there.history[-1, "train_loss"] < there.history[0, "train_loss"]
    line = NeuralNetRegressor(nn.Linear, module__in_features=64, module__out_features=1, max_epochs=5, lr=0.01, optimizer=torch.optim.Adam, train_split=ValidSplit(3), verbose=0)
    line.fit(x / 16, y.astype(np.float32)[:, None])
    print([round(float(loss), 3) for loss in line.history[:, "valid_loss"]])
    net.save_params(f_params=f"{folder}/p.pt", f_optimizer=f"{folder}/o.pt")
    net.load_params(f_params=f"{folder}/p.pt", f_optimizer=f"{folder}/o.pt")


def lightning(folder):
    import lightning as L
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, ModelSummary

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

        def predict_step(self, batch, index):
            return self.layers(batch[0])

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), self.hparams.rate)
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}

    def trainer(device_type, epochs):
        return L.Trainer(max_epochs=epochs, accelerator={"cpu": "cpu", "cuda": "gpu"}[device_type], devices=1, logger=False, default_root_dir=folder, gradient_clip_val=1.0,
                         enable_progress_bar=False, callbacks=[ModelCheckpoint(monitor="valid", dirpath=f"{folder}/{device_type}", save_last=True), EarlyStopping("valid"), ModelSummary(2)])

    data, ends = rows(), []
    for device_type in device_types():
        seed()
        model, fitted = Model(), trainer(device_type, 2)
        fitted.fit(model, data, data)
        best = fitted.checkpoint_callback.best_model_path
        again = Model.load_from_checkpoint(best)
        print(fitted.validate(again, data), again.hparams, [tuple(y.shape) for y in fitted.predict(again, data)])
        further = trainer(device_type, 3)
        further.fit(Model(), data, data, ckpt_path=f"{folder}/{device_type}/last.ckpt")
        assert (further.current_epoch, further.global_step) == (3, 12)
        ends.append([p.detach().cpu() for p in further.model.parameters()])
    for one, other in zip(ends[0], ends[-1]):
        assert_close("lightning", one, other)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    seed()
    with tempfile.TemporaryDirectory() as there:
        globals()[sys.argv[1]](there)
