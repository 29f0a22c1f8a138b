# SPDX-License-Identifier: Apache-2.0
"""torch.utils.tensorboard: over the tensorboard package if it is installed, otherwise over tensorboardX. A stub of the latter is defined
here."""
import importlib.util, os, subprocess, sys, tempfile, unittest

import phlox as torch

if importlib.util.find_spec("tensorboard"):
    from phlox.utils.tensorboard import SummaryWriter
HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None
STAND_IN = """
class FileWriter: pass
class SummaryWriter:
    said = []
    def add_scalar(self, tag, value, step=None): "A number."; self.said.append((tag, type(value).__name__, step))
    def add_scalars(self, tag, values): self.said.append((tag, {name: type(value).__name__ for name, value in values.items()}))
    def add_graph(self, model): raise AssertionError
    def close(self): pass
"""


def run(code, folder):
    code = "import sys, phlox as torch\nsys.modules['tensorboard'] = None\n" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": f"{folder}:" + os.environ.get("PYTHONPATH", "")})
    return done.stdout.strip(), done.stderr.strip().split("\n")[-1]


class MissingPackage(unittest.TestCase):
    def test_import_error(self):
        out, error = run("sys.modules['tensorboardX'] = None\nimport phlox.utils.tensorboard", "/")
        self.assertRegex(error, "^ModuleNotFoundError: .*tensorboard")
        self.assertEqual(run("print(hasattr(torch.utils, 'tensorboard'))", "/"), ("False", ""))

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "numpy is not installed")
    def test_tensorboardx_receives_arrays(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "tensorboardX.py"), "w") as file:
                file.write(STAND_IN)
            out, error = run("from phlox.utils.tensorboard import SummaryWriter\nw = SummaryWriter()\n"
                             "w.add_scalar('a', torch.ones(1, dtype=torch.bfloat16, requires_grad=True), 3), w.add_scalars('b', {'x': torch.ones(1), 'y': 2})\n"
                             "print(w.said, w.add_scalar.__doc__)\nw.add_graph(None)", folder)
        self.assertEqual(out, "[('a', 'ndarray', 3), ('b', {'x': 'ndarray', 'y': 'int'})] A number.")
        self.assertEqual(error, "NotImplementedError: SummaryWriter.add_graph is not implemented in Phlox")


@unittest.skipUnless(HAS_TENSORBOARD, "tensorboard is not installed")
class Writer(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def writer(self, *args, **options):
        return SummaryWriter(self.folder, *args, **options)

    def read(self, below=""):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        return EventAccumulator(os.path.join(self.folder, below), size_guidance={"histograms": 0, "images": 0, "tensors": 0}).Reload()

    def test_scalars(self):
        with self.writer(filename_suffix=".x") as writer:
            writer.add_scalar("loss", torch.tensor(0.5, requires_grad=True), 3, walltime=7.5)
            writer.add_scalar("loss", 2)
            writer.add_scalars("a/b", {"x": torch.tensor([1.5]), "y": 2}, 4)
            with self.assertRaisesRegex(AssertionError, r"Tensor should contain one element \(0 dimensions\). Was given size: 2 and 1 dimensions."):
                writer.add_scalar("no", torch.ones(2))
            with self.assertRaises(AssertionError):
                writer.add_scalars("no", {"x": 1, "y": torch.ones(2)})
            self.assertEqual(len(writer.all_writers), 3)  # an invalid value creates no folder
        self.assertEqual([(e.step, e.value) for e in self.read().Scalars("loss")], [(3, 0.5), (0, 2.0)])
        self.assertEqual(self.read().Scalars("loss")[0].wall_time, 7.5)
        self.assertEqual([(e.step, e.value) for e in self.read("a_b_x").Scalars("a/b")], [(4, 1.5)])
        self.assertTrue(any(name.endswith(".x") for name in os.listdir(self.folder)))

    def test_closed_writer_starts_new_file(self):
        writer = self.writer()
        writer.close(), writer.close()
        writer.add_scalar("again", 1)
        writer.flush(), writer.close()
        self.assertEqual(self.read().Tags()["scalars"], ["again"])

    def test_histograms(self):
        with self.writer() as writer:
            writer.add_histogram("h", torch.tensor([1.0, 1.0, -2.0]), 1)
            writer.add_histogram("few", torch.arange(100.0), bins=10, max_bins=5)
            with self.assertRaisesRegex(ValueError, "The input has no element."):
                writer.add_histogram("no", torch.zeros(0))
        one, few = (self.read().Histograms(name)[0].histogram_value for name in ("h", "few"))
        self.assertEqual((one.min, one.max, one.num, one.sum, one.sum_squares), (-2, 1, 3, 0, 6))
        filled = [(limit, count) for limit, count in zip(one.bucket_limit, one.bucket) if count]
        self.assertEqual([count for _, count in filled], [1, 2])
        self.assertTrue(-2 <= filled[0][0] <= -2 / 1.1 and 1 <= filled[1][0] <= 1.1)
        self.assertEqual(one.bucket[0], 0)
        self.assertEqual((list(few.bucket), [round(x, 1) for x in few.bucket_limit]), ([0, 20, 20, 20, 20, 20], [0, 19.8, 39.6, 59.4, 79.2, 99]))

    def test_images(self):
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("Pillow is not installed")
        import io
        numbers = torch.arange(24).reshape(3, 2, 4).to(torch.uint8)
        with self.writer() as writer:
            writer.add_image("chw", numbers), writer.add_image("hwc", numbers.permute(1, 2, 0).float() / 255, dataformats="hwc")
            writer.add_images("nchw", torch.ones(9, 1, 2, 3))
            for shape, letters in (((2, 2), "CHW"), ((2, 2), "HH"), ((2, 2), "NC")):
                with self.assertRaisesRegex(AssertionError, "size of input tensor and input format are different."):
                    writer.add_image("no", torch.ones(shape), dataformats=letters)
        pixels = {}
        for name in ("chw", "hwc", "nchw"):
            event = self.read().Images(name)[0]
            flat = Image.open(io.BytesIO(event.encoded_image_string)).tobytes()
            pixels[name] = list(zip(flat[::3], flat[1::3], flat[2::3]))
            self.assertEqual((event.width, event.height), (24, 4) if name == "nchw" else (4, 2))
        self.assertEqual(pixels["chw"], [(i, i + 8, i + 16) for i in range(8)])
        self.assertEqual(pixels["hwc"], pixels["chw"])
        self.assertEqual([pixels["nchw"].count((level,) * 3) for level in (255, 0)], [9 * 6, 7 * 6])

    def test_text_and_hparams(self):
        from tensorboard.plugins.hparams import plugin_data_pb2
        with self.writer() as writer:
            writer.add_text("note", "so *it* is", 2)
            writer.add_hparams({"lr": 0.5, "name": "x", "on": True, "t": torch.tensor(3), "none": None}, {"acc": 0.25}, {"lr": [0.5, 1]}, run_name="hp")
            with self.assertRaisesRegex(TypeError, "^hparam_dict and metric_dict should be dictionary.$"):
                writer.add_hparams([], {})
            with self.assertRaisesRegex(ValueError, "^value should be one of int, float, str, bool, or torch.Tensor$"):
                writer.add_hparams({"x": []}, {}, run_name="bad")
        self.assertEqual(self.read().Tensors("note/text_summary")[0].tensor_proto.string_val[0], b"so *it* is")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "bad")))
        parts = {tag: plugin_data_pb2.HParamsPluginData.FromString(content) for tag, content in self.read("hp").PluginTagToContent("hparams").items()}
        given = parts["_hparams_/session_start_info"].session_start_info.hparams
        self.assertEqual((given["lr"].number_value, given["name"].string_value, given["on"].bool_value, given["t"].number_value, len(given)), (0.5, "x", True, 3, 4))
        infos = {info.name: info for info in parts["_hparams_/experiment"].experiment.hparam_infos}
        self.assertEqual([value.number_value for value in infos["lr"].domain_discrete.values], [0.5, 1])
        self.assertEqual(self.read("hp").Scalars("acc")[0].value, 0.25)

    def test_purge_step(self):
        with self.writer() as writer:
            for step in range(4):
                writer.add_scalar("loss", step, step)
        with self.writer(purge_step=2) as writer:
            writer.add_scalar("loss", 9, 2)
        self.assertEqual([(e.step, e.value) for e in self.read().Scalars("loss")], [(0, 0), (1, 1), (2, 9)])

    def test_missing_methods(self):
        with self.writer() as writer:
            self.assertFalse(hasattr(writer, "add_graph"))
            with self.assertRaisesRegex(AttributeError, "has no attribute 'add_video': SummaryWriter.add_video is not implemented in Phlox$"):
                writer.add_video
            with self.assertRaisesRegex(AttributeError, "has no attribute 'add_nothing'$"):
                writer.add_nothing


if __name__ == "__main__":
    unittest.main()
