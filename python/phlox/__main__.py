# SPDX-License-Identifier: Apache-2.0
"""python3 -m phlox FILE | -c CODE | -m MODULE [ARGUMENT...]: runs a program with `torch` and its
submodules bound to Phlox. Processes started by multiprocessing run the same way."""
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
    if not args:
        sys.argv = [""]
        import code
        code.interact(banner="", local=new_main())
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
