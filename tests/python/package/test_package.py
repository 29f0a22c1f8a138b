# SPDX-License-Identifier: Apache-2.0
"""Structure of the package: module paths that libraries import, placeholders for names without an implementation, and compile functions that
run eagerly. Compared with PyTorch if a recent one is installed: every public name of these modules."""
import collections, importlib, inspect, os, pathlib, pickle, re, subprocess, sys, tempfile, types, unittest, warnings

import phlox as torch
from phlox import nn
import peer
from peer import newest as real
from test_main import run

# Names imported by libraries, by module path.
IMPORTED = {
    "nn.modules": "Module Linear conv utils batchnorm",
    "nn.modules.activation": "ReLU GELU Softmax",
    "nn.modules.batchnorm": "_BatchNorm _NormBase BatchNorm2d",
    "nn.modules.container": "Sequential ModuleList ModuleDict ParameterList",
    "nn.modules.conv": "_ConvNd _ConvTransposeNd Conv1d Conv2d",
    "nn.modules.dropout": "_DropoutNd Dropout",
    "nn.modules.instancenorm": "_InstanceNorm InstanceNorm2d",
    "nn.modules.linear": "Linear Identity Bilinear",
    "nn.modules.loss": "_Loss _WeightedLoss CrossEntropyLoss MSELoss",
    "nn.modules.module": "Module _global_forward_hooks register_module_forward_hook",
    "nn.modules.normalization": "LayerNorm GroupNorm",
    "nn.modules.pooling": "_MaxPoolNd MaxPool2d AvgPool2d",
    "nn.modules.utils": "_single _pair _triple _quadruple _ntuple _reverse_repeat_tuple consume_prefix_in_state_dict_if_present",
    "nn.common_types": "_size_any_t _size_1_t _size_2_t _size_2_opt_t _ratio_3_t _size_6_t",
    "nn.parallel": "DataParallel DistributedDataParallel",
    "nn.parallel.distributed": "DistributedDataParallel",
    "nn.parallel.scatter_gather": "scatter gather scatter_kwargs",
    "nn.utils.clip_grad": "clip_grad_norm_ clip_grad_value_",
    "optim.adam": "Adam", "optim.adamw": "AdamW", "optim.sgd": "SGD", "optim.optimizer": "Optimizer", "optim.lr_scheduler": "StepLR LRScheduler",
    "utils.checkpoint": "checkpoint checkpoint_sequential CheckpointError",
    "utils.data.dataloader": "DataLoader default_collate", "utils.data.dataset": "Dataset Subset", "utils.data.sampler": "Sampler BatchSampler",
    "utils.data._utils.collate": "default_collate default_convert",
    "utils.cpp_extension": "load CUDAExtension BuildExtension",
    "jit": "script trace ignore export unused is_scripting is_tracing ScriptModule annotate Final load save",
    "compiler": "compile disable is_compiling reset", "_dynamo": "disable reset config", "_jit_internal": "Final annotate",
    "fx": "Tracer GraphModule symbolic_trace wrap Node", "fx.graph_module": "GraphModule _copy_attr", "fx.node": "Node",
    "onnx": "export is_in_onnx_export", "onnx.symbolic_helper": "parse_args", "ao.quantization": "QuantStub DeQuantStub prepare convert",
    "quantization": "QuantStub fuse_modules", "export": "export Dim", "package": "PackageImporter",
    "distributed": "is_available is_initialized init_process_group get_rank all_reduce ReduceOp", "distributed.fsdp": "FullyShardedDataParallel",
    # Imported by transformers, accelerate and lightning if torch.distributed is available.
    "distributed.constants": "default_pg_timeout", "distributed._functional_collectives": "wait_tensor all_to_all_single_autograd",
    "distributed.fsdp.fully_sharded_data_parallel": "FullyShardedDataParallel MixedPrecision StateDictType CPUOffload OptimStateKeyType",
    "distributed.fsdp.api": "ShardedStateDictConfig StateDictType", "distributed.fsdp.wrap": "ModuleWrapPolicy enable_wrap transformer_auto_wrap_policy",
    "distributed.fsdp.sharded_grad_scaler": "ShardedGradScaler", "distributed._composable.fsdp": "fully_shard FSDPModule",
    "distributed.device_mesh": "DeviceMesh init_device_mesh", "distributed.tensor": "DTensor Shard Replicate Partial distribute_tensor",
    "distributed.tensor.placement_types": "Shard _StridedShard", "distributed.tensor._utils": "compute_local_shape_and_global_offset",
    "distributed.tensor.parallel": "loss_parallel parallelize_module", "distributed._tensor": "DTensor", "distributed._tensor.experimental": "implicit_replication",
    "distributed.checkpoint": "save load FileSystemReader FileSystemWriter", "distributed.checkpoint.hf_storage": "HuggingFaceStorageReader",
    "distributed.checkpoint.state_dict": "StateDictOptions get_model_state_dict set_optimizer_state_dict", "distributed.checkpoint.state_dict_loader": "_load_state_dict",
    "distributed.checkpoint.default_planner": "DefaultLoadPlanner", "distributed.checkpoint.optimizer": "load_sharded_optimizer_state_dict",
    "distributed.algorithms._checkpoint.checkpoint_wrapper": "CheckpointWrapper", "distributed.algorithms.model_averaging.averagers": "ModelAverager",
    "distributed.nn.functional": "all_gather", "distributed.utils": "_sync_module_states",
    "distributed.algorithms.join": "Join", "distributed.distributed_c10d": "ProcessGroup", "profiler": "profile ProfilerActivity record_function",
    "autograd.profiler": "record_function profile", "cuda.nvtx": "range_push range_pop",
    "utils.collect_env": "get_pretty_env_info main", "utils.data.distributed": "DistributedSampler", "utils._pytree": "tree_map tree_flatten TreeSpec register_pytree_node SUPPORTED_NODES",
    "hub": "load load_state_dict_from_url get_dir", "utils.model_zoo": "load_url tqdm", "library": "register_fake Library",
    "onnx.symbolic_opset11": "", "jit.annotations": "BroadcastingList2", "_C": "DispatchKey DispatchKeySet",
    "types": "Number Device _size _int _bool", "autograd.graph": "saved_tensors_hooks save_on_cpu Node", "random": "fork_rng",
    "linalg": "vector_norm matmul", "special": "expit", "fft": "rfft", "functional": "einsum split", "_tensor": "Tensor", "version": "__version__ cuda",
}


def rows():
    """The modules of the table, starting from the root: (path, names by source)."""
    paths, found = [""], []
    while paths:
        path = paths.pop()
        row = torch._path(path)
        for name in torch._path_below(path):
            paths.append(f"{path}.{name}".strip("."))
        if row is not None:
            found.append((path, row))
    return found


def module_of(path):
    return importlib.import_module(f"phlox.{path}".strip("."))


class Paths(unittest.TestCase):
    def test_imported_names_exist(self):
        for path, names in IMPORTED.items():
            module = module_of(path)
            for name in names.split():
                with self.subTest(path=path, name=name):
                    self.assertTrue(hasattr(module, name))

    def test_every_table_name_exists_or_raises(self):
        seen = 0
        for path, names in rows():
            module = module_of(path)
            for part in filter(None, names.split("; ")):
                for name in re.sub("=[^ ]*", "", part.partition(": ")[2]).split():
                    seen += 1
                    try:
                        name == "*" or getattr(module, name)
                    except AttributeError as error:
                        full = f"torch.{path}.{name}".replace("..", ".")
                        self.assertTrue(str(error).endswith(f": {full} is not implemented in Phlox"), error)
        self.assertGreater(seen, 500)

    def test_modules_are_attributes_without_import(self):
        code = ("import torch, sys; print('phlox.fx' in sys.modules, torch.nn.modules.conv.Conv2d is torch.nn.Conv2d, torch.fx.__name__, "
                "torch.distributed.is_initialized(), torch.utils.checkpoint.checkpoint.__name__)")
        self.assertEqual(run("-c", code)[1], "False True torch.fx False checkpoint")

    def test_function_shadowed_by_module_is_callable(self):
        importlib.import_module("phlox.autograd.gradcheck"), importlib.import_module("phlox.nn.parallel.data_parallel")
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(torch.sin, x))
        self.assertTrue(torch.autograd.gradcheck.gradcheck(torch.sin, x))
        self.assertEqual(nn.parallel.data_parallel(nn.ReLU(), torch.tensor([-1.0, 2.0])).tolist(), [0, 2])
        if torch.cuda.device_count():  # without devices, device_ids is ignored
            with self.assertRaisesRegex(ValueError, "device_ids must name at least one device"):
                nn.parallel.data_parallel(nn.ReLU(), torch.tensor([-1.0]), [])

    def test_collect_env(self):
        report = run("-m", "torch.utils.collect_env")[1]
        for line in (f"Phlox version: {torch.__version__}", f"Python version: {sys.version.split()[0]}", f"Is CUDA available: {torch.cuda.is_available()}",
                     "cuDNN version: ", "Versions of relevant libraries"):
            self.assertIn(line, report)
        self.assertEqual(re.findall(r"\bGPU (\d+): ", report), [str(i) for i in range(torch.cuda.device_count())])
        collect = torch.utils.collect_env
        env = collect.get_env_info()
        with self.subTest("what is not known is said to be so"):
            self.assertIn("\nGCC version: Could not collect\n", collect.pretty_str(env._replace(gcc_version=None)))
        self.assertEqual(collect.run("no-such-command --version")[0], 127)
        self.assertEqual(collect.run([sys.executable, "-c", "print(7)"]), (0, "7", ""))

    def test_unknown_names_raise(self):
        with self.assertRaisesRegex(AttributeError, "^module 'torch.nn.modules.conv' has no attribute 'Conv9d'$"):
            module_of("nn.modules.conv").Conv9d
        with self.assertRaisesRegex(ImportError, "No module named 'phlox.nn.modules.frobnicate'"):
            module_of("nn.modules.frobnicate")

    def test_empty_folders_do_not_shadow_modules(self):
        code = ("import sys, phlox; phlox.__path__.insert(0, sys.argv[1]); phlox.nn.__path__.insert(0, sys.argv[1] + '/nn'); "
                "import phlox.nn.modules as m, phlox.fx, phlox.serialization as s; "
                "print(m.Linear is phlox.nn.Linear, callable(phlox.fx.Tracer), s.__file__ == phlox.__file__.replace('__init__', 'serialization'))")
        with tempfile.TemporaryDirectory() as folder:
            for path in ("nn/modules/__pycache__", "fx", "serialization"):
                os.makedirs(os.path.join(folder, path))
            done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
        self.assertEqual((done.stdout.strip(), done.stderr), ("True True True", ""))

    def test_star_import(self):
        space = {}
        exec("from phlox.nn.modules.pooling import *", space)
        self.assertIn("MaxPool2d", space)
        self.assertNotIn("FractionalMaxPool3d" if not hasattr(nn, "FractionalMaxPool3d") else "", space)

    def test_start_up_imports_no_placeholders(self):
        code = "import sys, phlox; print([name for name, m in list(sys.modules.items()) if name[:6] == 'phlox.' and str(vars(m).get('__file__'))[-3:] == '.py'])"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip(), "[]")


class BaseClasses(unittest.TestCase):
    def test_layers_derive_from_private_base_classes(self):
        for family, layers in {nn.modules.batchnorm._BatchNorm: [nn.BatchNorm1d(2), nn.BatchNorm2d(2)],
                               nn.modules.conv._ConvNd: [nn.Conv1d(1, 1, 1), nn.Conv2d(1, 1, 1), nn.ConvTranspose2d(1, 1, 1)],
                               nn.modules.dropout._DropoutNd: [nn.Dropout()], nn.modules.loss._Loss: [nn.MSELoss(), nn.NLLLoss()],
                               nn.modules.loss._WeightedLoss: [nn.CrossEntropyLoss()]}.items():
            for layer in layers:
                self.assertIsInstance(layer, family)
                self.assertNotIsInstance(nn.Linear(1, 1), family)
        self.assertTrue(issubclass(nn.modules.conv._ConvNd, nn.Module))

    def test_size_tuples(self):
        utils = module_of("nn.modules.utils")
        self.assertEqual((utils._pair(3), utils._triple([1, 2, 3]), utils._single("ab"), utils._ntuple(5)(0)), ((3, 3), (1, 2, 3), ("a", "b"), (0,) * 5))
        self.assertEqual(utils._reverse_repeat_tuple((1, 2), 2), (2, 2, 1, 1))
        state = nn.DataParallel(nn.Linear(1, 1)).state_dict()
        utils.consume_prefix_in_state_dict_if_present(state, "module.")
        self.assertEqual((list(state), sorted(state._metadata)), (["weight", "bias"], [""]))


class Aliases(unittest.TestCase):
    """Ops in separate modules: aliases of the tables, linalg.matmul and special.expit."""

    def test_unentered_flop_counter_is_empty(self):
        from phlox.utils.flop_counter import FlopCounterMode
        counter = FlopCounterMode(display=False)
        self.assertEqual((counter.get_total_flops(), counter.get_flop_counts()), (0, {"Global": {}}))
        with counter:
            pass
        self.assertEqual(counter.get_total_flops(), 0)

    def test_special_and_linalg(self):
        x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        special, linalg = torch.special, torch.linalg
        for name in "erf erfc exp2 expm1 log1p round".split():
            self.assertTrue(torch.equal(getattr(special, name)(x), getattr(torch, name)(x)))
        self.assertTrue(torch.equal(special.expit(x), torch.sigmoid(x)) and torch.equal(special.softmax(x, 1), torch.softmax(x, 1)))
        self.assertTrue(torch.equal(special.xlogy(x, 2), torch.xlogy(x, torch.tensor(2.0))) and torch.equal(special.logsumexp(x, 0), x.logsumexp(0)))
        self.assertEqual((linalg.vector_norm(x[:, :1], 1).item(), linalg.vector_norm(x, float("inf"), 1).tolist()), (5, [3, 6]))
        self.assertEqual((linalg.vecdot(x, x[0]).tolist(), linalg.vecdot(x, x, dim=0).tolist()), ([14, 32], [17, 29, 45]))
        self.assertEqual((linalg.diagonal(x).tolist(), linalg.diagonal(x, offset=1).tolist(), linalg.diagonal(torch.zeros(2, 3, 4, 5)).shape), ([1, 5], [2, 6], (2, 3, 4)))
        self.assertTrue(torch.equal(linalg.matmul(x, x.T), x @ x.T))

    def test_errors_use_alias_names(self):
        with self.assertRaisesRegex(TypeError, r"^special_expit\(\): argument 'input' \(position 1\) must be Tensor, not str$"):
            torch.special.expit("x")
        with self.assertRaisesRegex(NotImplementedError, "^linalg.vector_norm: Expected a floating point or complex tensor as input. Got Long$"):
            torch.linalg.vector_norm(torch.tensor([1]))
        with self.assertRaisesRegex(RuntimeError, "^linalg.vecdot: Expected x and y to have the same dtype, but found x of type Float and y of type Double instead$"):
            torch.linalg.vecdot(torch.ones(1), torch.ones(1, dtype=torch.float64))
        for function in (torch.special.expit, torch.linalg.matmul, torch.linalg.vecdot):
            self.assertIs(pickle.loads(pickle.dumps(function)), function)
        self.assertEqual((torch.special.expit.__name__, hasattr(torch, "linalg_vecdot")), ("special_expit", False))

    def test_no_empty_names(self):
        for module in (torch, torch.nn, torch.nn.functional, torch.special):
            self.assertFalse(hasattr(module, ""))

    def test_missing_names_raise(self):
        for path, name in (("func", "functionalize"),):
            module = module_of(path)
            self.assertFalse(hasattr(module, name))
            with self.assertRaisesRegex(AttributeError, f"torch.{path}.{name} is not implemented in Phlox$"):
                getattr(module, name)


class Placeholders(unittest.TestCase):
    def test_calls_raise(self):
        for path, name in (("fx", "symbolic_trace"), ("onnx", "export"), ("ao.quantization", "QuantStub"), ("distributed", "shrink_group"),
                           ("jit", "save"), ("export", "export"), ("distributed.checkpoint", "DefaultSavePlanner")):
            with self.assertRaisesRegex(NotImplementedError, f"^torch.{path}.{name} is not implemented in Phlox$"):
                getattr(module_of(path), name)(nn.Linear(1, 1), "nccl")

    def test_placeholder_classes_can_be_subclassed(self):
        class Leaf(torch.fx.Tracer):
            pass

        with self.assertRaisesRegex(NotImplementedError, "^torch.fx.Tracer is not implemented in Phlox$"):
            Leaf()
        self.assertNotIsInstance(nn.Linear(1, 1), (nn.parallel.DistributedDataParallel, torch.jit.ScriptModule, torch.fx.GraphModule))
        self.assertIs(torch.fx.graph_module.GraphModule, torch.fx.GraphModule)
        with self.assertRaises(KeyError):
            try:
                raise KeyError
            except torch.distributed.DistBackendError:
                pass

    def test_queries_return_false(self):
        for path, names in {"distributed": "is_initialized is_ucc_available", "jit": "is_scripting is_tracing",
                            "compiler": "is_compiling", "onnx": "is_in_onnx_export"}.items():
            for name in names.split():
                self.assertIs(getattr(module_of(path), name)(), False)


class Compile(unittest.TestCase):
    def test_script_and_trace_warn_once(self):
        code = """
import torch, warnings
def double(x): return x * 2
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    @torch.jit.script
    def triple(x): return x * 3
    traced = torch.jit.trace(double, torch.ones(1))
    torch.jit.trace(double, torch.ones(1))
print(triple(1), traced is double)
for one in seen: print(one.category.__name__, one.filename, one.message)
"""
        out = run("-c", code)[1].split("\n")
        self.assertEqual(out[0], "3 True")
        self.assertEqual([line.partition(" runs")[0] for line in out[1:]], ["UserWarning <string> torch.jit.script compiles nothing in Phlox: triple",
                                                                          "UserWarning <string> torch.jit.trace compiles nothing in Phlox: double"])

    def test_decorators_return_function(self):
        def f(x):
            return x

        jit = torch.jit
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for made in (jit.ignore(f), jit.ignore(drop=True)(f), jit.unused(f), jit.export(f), torch.compiler.disable(recursive=False)(f), torch.fx.wrap(f), jit.script(f), jit.freeze(f)):
                self.assertIs(made, f)
        self.assertEqual((torch.fx.wrap("len"), jit.annotate(list, 3), jit.Attribute(3, int).value), ("len", 3, 3))

    def test_script_modules_are_modules(self):
        class Net(torch.jit.ScriptModule):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 1)

            @torch.jit.script_method
            def forward(self, x):
                return self.layer(x)

        self.assertEqual(Net()(torch.ones(1, 2)).shape, (1, 1))


class Checks(unittest.TestCase):
    def test_assertions(self):
        torch._assert(True, "no"), torch._check(True)
        with self.assertRaisesRegex(AssertionError, "^no$"):
            torch._assert(False, "no")
        for check, kind in ((torch._check, RuntimeError), (torch._check_index, IndexError), (torch._check_value, ValueError),
                            (torch._check_type, TypeError), (torch._check_not_implemented, NotImplementedError)):
            for message, text in ((None, "^Expected cond to be True, but got False."), ("so", "^so$"), (lambda: 3, "^3$")):
                with self.assertRaisesRegex(kind, text):
                    check(False, message)
        for cond, text in ((1, "^cond must be a bool, but got <class 'int'>$"), (torch.tensor(True), "^cond must be a bool, but got a Tensor.")):
            with self.assertRaisesRegex(TypeError, text):
                torch._check(cond)

    def test_fan_in_and_fan_out(self):
        fans = nn.init._calculate_fan_in_and_fan_out
        self.assertEqual((fans(torch.empty(3, 5)), fans(torch.empty(4, 2, 3, 3))), ((5, 3), (18, 36)))
        self.assertEqual((nn.init._calculate_correct_fan(torch.empty(3, 5), "fan_out")), 3)
        with self.assertRaisesRegex(ValueError, "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"):
            fans(torch.empty(3))
        with self.assertRaisesRegex(ValueError, r"^Mode in not supported, please use one of \['fan_in', 'fan_out'\]$"):
            nn.init._calculate_correct_fan(torch.empty(3, 5), "in")

    def test_data_loader_iterator_classes(self):
        loader = importlib.import_module("phlox.utils.data.dataloader")
        self.assertIsInstance(iter(loader.DataLoader([1])), (loader._BaseDataLoaderIter, loader._SingleProcessDataLoaderIter))
        self.assertTrue(issubclass(loader._MultiProcessingDataLoaderIter, loader._BaseDataLoaderIter))


class Hub(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder, self.hub = temporary.name, torch.hub
        self.addCleanup(self.hub.set_dir, self.hub.get_dir())

    def write(self, text):
        with open(os.path.join(self.folder, "hubconf.py"), "w") as file:
            file.write(text)

    def test_load_from_folder(self):
        with open(os.path.join(self.folder, "beside_hubconf.py"), "w") as file:
            file.write("size = 3\n")
        self.write("dependencies = ['math']\nimport phlox as torch\nfrom beside_hubconf import size\n"
                   "def net(extra, bias=True):\n    'A layer.'\n    return torch.nn.Linear(size, extra, bias)\ndef _hidden(): pass\n")
        layer = self.hub.load(self.folder, "net", 2, source="local", bias=False)
        self.assertEqual((layer.weight.shape, layer.bias), ((2, 3), None))
        self.assertEqual((self.hub.list(self.folder, source="local"), self.hub.help(self.folder, "net", source="local")), (["net"], "A layer."))
        self.assertNotIn(self.folder, sys.path)
        with self.assertRaisesRegex(RuntimeError, "^Cannot find callable no in hubconf$"):
            self.hub.load(self.folder, "no", source="local")
        self.write("dependencies = ['math', 'no_such_package']\n")
        with self.assertRaisesRegex(RuntimeError, "^Missing dependencies: no_such_package$"):
            self.hub.list(self.folder, source="local")

    def test_downloads_are_not_implemented(self):
        with self.assertRaisesRegex(NotImplementedError, "source='github' is not implemented in Phlox"):
            self.hub.load("pytorch/vision", "resnet18")
        with self.assertRaisesRegex(ValueError, '^Unknown source: "web". Allowed values: "github" \\| "local".$'):
            self.hub.load(self.folder, "net", source="web")
        with self.assertRaisesRegex(NotImplementedError, "put the file of https://example.org/a.pth at .*/a.pth$"):
            self.hub.load_state_dict_from_url("https://example.org/a.pth", self.folder)

    def test_load_state_dict_from_file_url(self):
        source, state = os.path.join(self.folder, "a b.pth"), nn.Linear(2, 1).state_dict()
        torch.save(state, source)
        url = pathlib.Path(source).as_uri()
        self.hub.set_dir(os.path.join(self.folder, "hub"))
        self.assertTrue(torch.equal(self.hub.load_state_dict_from_url(url, file_name="x.pth")["weight"], state["weight"]))
        os.remove(source)
        kept = importlib.import_module("phlox.utils.model_zoo").load_url("https://example.org/x.pth", map_location="meta")
        self.assertEqual(kept["weight"].device.type, "meta")
        with self.assertRaisesRegex(RuntimeError, "^invalid hash value"):
            self.hub.download_url_to_file(pathlib.Path(__file__).as_uri(), source, "0000")
        self.assertFalse(os.path.exists(source))


class PyTree(unittest.TestCase):
    def test_flatten_and_unflatten(self):
        pytree = torch.utils._pytree
        Pair = collections.namedtuple("Pair", "a b")
        for tree in (3, [], (1, [2, {"x": 3, "y": None}]), Pair(1, (2,)), collections.OrderedDict(b=1, a=2), collections.deque([1, [2]], 3),
                     collections.defaultdict(list, k=[1])):
            leaves, spec = pytree.tree_flatten(tree)
            self.assertEqual((pytree.tree_unflatten(leaves, spec), spec.num_leaves, pytree.tree_leaves(tree)), (tree, len(leaves), leaves))
            self.assertEqual(type(spec.unflatten(leaves)), type(tree))
            self.assertEqual(pytree.tree_structure(tree), spec)
        with self.assertRaisesRegex(ValueError, "`leaves` has length 1 but the spec refers to a pytree that holds 2 items"):
            pytree.tree_unflatten([1], pytree.tree_structure((1, 2)))

    def test_tree_map(self):
        pytree = torch.utils._pytree
        self.assertEqual(pytree.tree_map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"b": [20], "a": 10}), {"a": 11, "b": [22]})
        self.assertEqual(pytree.tree_map_only(int, str, [1, 2.5, (3,)]), ["1", 2.5, ("3",)])
        self.assertEqual(pytree.tree_map(len, [[1, 2], [3]], is_leaf=lambda x: isinstance(x, list) and isinstance(x[0], int)), [2, 1])
        self.assertTrue(pytree.tree_all(bool, [1, (2,)]) and not pytree.tree_any(bool, [0, {"x": 0}]))
        with self.assertRaisesRegex(ValueError, "Node type mismatch"):
            pytree.tree_map(max, [1, 2], (1, 2))
        self.assertEqual((list(pytree.tree_iter({"b": [1, ()], "a": None})), list(pytree.tree_iter(3))), ([1, None], [3]))
        self.assertEqual([pytree.tree_is_leaf(x) for x in (1, None, [], {})], [True, True, False, False])
        self.assertTrue(pytree.tree_all_only(int, bool, [1, 0.0]) and not pytree.tree_all_only(float, bool, [1, 0.0]))
        self.assertTrue(pytree.tree_any_only(int, bool, [1, 0.0]) and not pytree.tree_any_only(float, bool, [1, 0.0]))
        seen, tree = [], [1, (2.5, 3)]
        self.assertIs(pytree.tree_map_only_(int, seen.append, tree), tree)
        self.assertIs(pytree.tree_map_(lambda x, y: seen.append(x + y), tree, [10, (20, 30)]), tree)
        self.assertEqual(seen, [1, 3, 11, 22.5, 33])

    def test_register_pytree_node(self):
        class Box:
            def __init__(self, inside):
                self.inside = inside

        pytree = torch.utils._pytree
        pytree.register_pytree_node(Box, lambda box: ([box.inside], None), lambda parts, _: Box(*parts))
        self.assertEqual(pytree.tree_map(lambda x: x + 1, [Box(1)])[0].inside, 2)
        with self.assertRaisesRegex(ValueError, "already registered as pytree node"):
            pytree.register_pytree_node(Box, None, None)


@unittest.skipUnless(real, peer.NOT_NEWEST)
class ComparedWithPyTorch(unittest.TestCase):
    def test_public_names_exist_or_raise(self):
        for path, names in rows():
            if not path or re.search(r"(^|\.)_|onnx\.|fx\.experimental", path):  # skips the root, which mixes all kinds of names, and private modules
                continue
            module, theirs = module_of(path), importlib.import_module(f"torch.{path}")
            for name, value in vars(theirs).items():
                own = getattr(value, "__module__", None) == theirs.__name__ and (inspect.isclass(value) or inspect.isroutine(value))
                if name.startswith("_") or isinstance(value, types.ModuleType) or not own or hasattr(module, name):
                    continue
                with self.subTest(path=path, name=name), self.assertRaisesRegex(AttributeError, "is not implemented in Phlox"):
                    getattr(module, name)


if __name__ == "__main__":
    unittest.main()
