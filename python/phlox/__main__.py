# SPDX-License-Identifier: Apache-2.0
"""python3 -m phlox FILE | -c CODE | -m MODULE [ARGUMENT...]: runs a program with `torch` and its
submodules bound to Phlox. Processes started by multiprocessing run the same way.
python3 -m phlox: a console. --version, --help: print and end. Also: python3 -m phlox.env (what a
bug report needs), phlox.devices (backends, and why one is not used), phlox.memory, phlox.profile and
phlox.races (pages of a program's memory, time and races)."""
import sys
import types

import phlox


class TorchAlias:
    """An import hook: torch.x is phlox.x. Imports phlox.x if needed."""

    def __init__(self, alias, spec):
        self.alias, self.spec = alias, spec

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if not name.startswith("torch."):
            return None
        from importlib import import_module, util
        real = "phlox" + name[5:]
        try:
            spec = import_module(real).__spec__
        except ModuleNotFoundError as error:
            if error.name != real:
                raise
            return None
        return util.spec_from_loader(name, cls(name, spec))

    @staticmethod
    def find_distributions(context):
        """Makes importlib.metadata report Phlox's version for torch, even with PyTorch
        installed."""
        from importlib.metadata import Distribution

        class Torch(Distribution):
            def read_text(self, filename):
                text = f"Metadata-Version: 2.1\nName: torch\nVersion: {phlox.__version__}\n"
                return text if filename == "METADATA" else None

            def locate_file(self, path):
                return path

        return [Torch()] if context.name == "torch" else []

    def create_module(self, alias):
        return sys.modules[self.spec.name if self.spec else "phlox" + alias.name[5:]]

    def get_code(self, alias):
        """Returns the module's code, for `-m torch.x`."""
        loader = self.spec and self.spec.loader
        return loader.get_code(self.spec.name) if hasattr(loader, "get_code") else None

    def exec_module(self, module):
        module.__spec__ = self.spec
        rename("phlox" + self.alias[5:])


def rename(first):
    """Renames a module and its submodules from phlox to torch, in sys.modules and in __name__.
    Specs and __package__ stay: the import system uses them."""
    for name, module in list(sys.modules.items()):
        if name == first or name.startswith(first + "."):
            sys.modules["torch" + name[5:]] = module
            module.__name__ = "torch" + name[5:]


def bind():
    """Makes `import torch` and `import torch.x` import Phlox."""
    rename("phlox")
    sys.meta_path.insert(0, TorchAlias)


def run_children_with_phlox(util):
    """Inserts `-m phlox` into the command line of multiprocessing's child processes."""
    flags = util._args_from_interpreter_flags
    util._args_from_interpreter_flags = lambda: flags() + ["-m", "phlox"]


def new_main(file=None):
    """Installs a new, empty __main__ module and returns its dict."""
    module = types.ModuleType("__main__")
    module.__builtins__ = __builtins__
    if file:
        module.__file__ = file
    sys.modules["__main__"] = module
    return module.__dict__


def fail(text, code=1):
    """Ends the process with a line on stderr, as the interpreter does."""
    print(f"{sys.executable}: {text}", file=sys.stderr)
    sys.exit(code)


def hide_own_frames():
    """Tracebacks of uncaught exceptions begin with the program's frames."""
    hook = sys.excepthook
    own = __file__, "<frozen runpy>", "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"

    def show(kind, error, traceback):
        while traceback and traceback.tb_frame.f_code.co_filename in own:
            traceback = traceback.tb_next
        hook(kind, error.with_traceback(traceback), traceback)

    sys.excepthook = show


def console():
    """An interactive interpreter with history and completion by Tab."""
    import code
    sys.argv = [""]
    names = new_main()
    count = phlox.cuda.device_count()
    devices = f"{count} {phlox.cuda.get_device_name(0)}{'s' * (count > 1)}" if count else "no GPU; PHLOX_SIM_DEVICES=2 simulates two"
    banner = f"Phlox {phlox.version.phlox} as torch {phlox.__version__} on Python {sys.version.split()[0]} ({devices})"
    if sys.stdin.isatty() and hasattr(sys, "__interactivehook__"):
        sys.__interactivehook__()
    code.interact(banner=banner, local=names, exitmsg="")


def check_module(name):
    """Fails if there is no module of this name."""
    from importlib.util import find_spec
    try:
        found = find_spec(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # an import inside the package of the module
        found = None
    if found is None:
        fail(f"No module named {name}")


def main(args):
    bind()
    sys.meta_path.insert(0, phlox._AfterImport("multiprocessing.util", run_children_with_phlox))
    hide_own_frames()
    if not args:
        console()
    elif args[0] in ("--version", "-V"):
        print(f"Phlox {phlox.version.phlox} (torch {phlox.__version__})")
    elif args[0] in ("--help", "-h"):
        print(__doc__)
    elif args[0] == "-c" and len(args) > 1:
        sys.argv, sys.path[0] = ["-c"] + args[2:], ""
        exec(compile(args[1], "<string>", "exec"), new_main())
    elif args[0] == "-m" and len(args) > 1:
        import runpy
        sys.argv, sys.path[0] = args[1:], ""
        check_module(args[1])
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
    elif args[0].startswith("-"):
        sys.exit(f"phlox: unknown option {args[0]}\n" + __doc__)
    else:
        import os
        sys.argv, sys.path[0] = args, os.path.dirname(os.path.abspath(args[0]))
        try:
            with open(args[0], "rb") as file:
                source = file.read()
        except OSError as error:
            fail(f"can't open file {args[0]!r}: [Errno {error.errno}] {error.strerror}", 2)
        exec(compile(source, args[0], "exec"), new_main(args[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
