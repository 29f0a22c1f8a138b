# SPDX-License-Identifier: Apache-2.0
"""torch.hub: models of local folders with a hubconf.py. Phlox downloads nothing; earlier downloads
are found in PyTorch's cache folder."""
from __future__ import annotations

import os
import re
import shutil
import sys
from hashlib import sha256
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from urllib.parse import unquote, urlparse

from phlox import _C, serialization

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

try:
    from tqdm import tqdm
except ImportError:
    pass  # the table of modules provides a placeholder for importers

_C._name_missing(__name__)
_folder = None
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # the hash in a file name


def _get_torch_home():  # used by torchvision
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "torch")
    return os.path.expanduser(os.environ.get("TORCH_HOME", cache))


def get_dir() -> str:
    """Returns the cache folder of torch.hub: $TORCH_HOME/hub. Default: ~/.cache/torch/hub."""
    return _folder or os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Sets the cache folder of torch.hub."""
    global _folder
    _folder = os.path.expanduser(d)


def _hubconf(folder, source):
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        raise NotImplementedError("torch.hub with source='github' is not implemented in Phlox: clone "
                                  "the repository, and use its folder with source='local'")
    spec = spec_from_file_location("hubconf", os.path.join(folder, "hubconf.py"))
    module = module_from_spec(spec)
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    missing = [name for name in getattr(module, "dependencies", None) or () if not _installed(name)]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _installed(name):
    return name in sys.modules or find_spec(name) is not None


def _entry(folder, source, name):
    if not isinstance(name, str):
        raise ValueError("Invalid input: model should be a string of function name")
    entry = getattr(_hubconf(folder, source), name, None)
    if not callable(entry):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return entry


def list(github: str, force_reload: bool = False, skip_validation: bool = False,
         trust_repo: Any = None, verbose: bool = True, *, source: str = "github") -> list[str]:
    """Lists the entrypoints of a folder's hubconf.py.

    Args:
        github (str): the folder
        source (str): "local"; "github" is not implemented in Phlox
    """
    found = vars(_hubconf(github, source)).items()
    return [name for name, value in found if callable(value) and not name.startswith("_")]


def help(github: str, model: str, force_reload: bool = False, skip_validation: bool = False,
         trust_repo: Any = None, *, source: str = "github") -> str | None:
    """Returns the docstring of an entrypoint of a folder's hubconf.py. Arguments are those of
    `list`."""
    return _entry(github, source, model).__doc__


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: Any = None,
         force_reload: bool = False, verbose: bool = True, skip_validation: bool = False,
         **kwargs: Any) -> Any:
    """Calls an entrypoint of a folder's hubconf.py with *args and **kwargs.

    Args:
        repo_or_dir (str): the folder
        model (str): the name of the entrypoint
        source (str): "local"; "github" is not implemented in Phlox
    """
    return _entry(repo_or_dir, source, model)(*args, **kwargs)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None,
                         progress: bool = True) -> None:
    """Copies the file of a file:// URL to `dst`. Other schemes raise NotImplementedError.

    Args:
        hash_prefix (str): the expected prefix of the file's SHA256
    """
    parts = urlparse(url)
    if parts.scheme != "file":
        raise NotImplementedError(f"torch.hub.download_url_to_file is not implemented in Phlox: put "
                                  f"the file of {url} at {dst}")
    with open(unquote(parts.path), "rb") as file:
        found = sha256(file.read()).hexdigest() if hash_prefix else ""
    if hash_prefix and not found.startswith(hash_prefix):
        raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')
    shutil.copyfile(unquote(parts.path), dst)


def load_state_dict_from_url(url: str, model_dir: str | None = None, map_location: Any = None,
                             progress: bool = True, check_hash: bool = False,
                             file_name: str | None = None, weights_only: bool = False) -> Any:
    """Loads a state dict from the file of a URL: the cached file in `model_dir` (default:
    checkpoints/ in get_dir()) if present, else a file:// URL.

    Args:
        map_location, weights_only: see torch.load
        check_hash (bool): if True, the file name ends in a prefix of the SHA256: name-1a2b3c4d.pth
        file_name (str): the name in `model_dir`. Default: the last part of the URL
    """
    name = file_name or os.path.basename(urlparse(url).path)
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        found = HASH_REGEX.search(name) if check_hash else None
        os.makedirs(folder, exist_ok=True)
        download_url_to_file(url, path, found[1] if found else None)
    return serialization.load(path, map_location=map_location, weights_only=weights_only)


load_url = load_state_dict_from_url  # the name in torch.utils.model_zoo
