# SPDX-License-Identifier: Apache-2.0
"""torch.utils.tensorboard.summary: TensorBoard's summary messages."""
import io

import numpy as np
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.plugins.text.summary_v2 import text_pb

from phlox import _C

from ._arrays import to_arrays

_C._name_missing(__name__)


def _message(tag, **value):
    return Summary(value=[Summary.Value(tag=tag, **value)])


def scalar(name, tensor):
    """Returns the summary of a scalar."""
    tensor = np.asarray(to_arrays(tensor))
    if tensor.size != 1:
        raise AssertionError("Tensor should contain one element (0 dimensions). Was given size: "
                             f"{tensor.size} and {tensor.ndim} dimensions.")
    return _message(name, simple_value=float(tensor.item()))


def text(tag, text):
    """Returns the summary of a Markdown text."""
    return text_pb(f"{tag}/text_summary", text)


def histogram(name, values, bins, max_bins=None):
    """Returns the summary of a histogram. `bins` is numpy.histogram's."""
    values = np.asarray(to_arrays(values), float).ravel()
    if not values.size:
        raise ValueError("The input has no element.")
    counts, limits = np.histogram(values, bins)
    if max_bins is not None and len(counts) > max_bins:
        starts = np.arange(0, len(counts), len(counts) // max_bins)
        counts, limits = np.add.reduceat(counts, starts), np.append(limits[starts], limits[-1])
    filled = np.flatnonzero(counts)
    if not filled.size:
        raise ValueError("The histogram is empty, please file a bug report.")
    first, last = filled[0], filled[-1] + 1
    # A bucket is stored as its right limit: a leading empty bucket marks the left limit of the first.
    return _message(name, histo=HistogramProto(
        min=values.min(), max=values.max(), num=values.size, sum=values.sum(),
        sum_squares=values @ values, bucket_limit=limits[first:last + 1],
        bucket=[0, *counts[first:last]]))


def _grid(pictures):
    """Arranges images (N, H, W, C) in a grid, eight per row."""
    (n, h, w, c), columns = pictures.shape, min(len(pictures), 8)
    rows = -(-n // columns)
    space = np.concatenate([pictures, np.zeros((rows * columns - n, h, w, c), pictures.dtype)])
    return space.reshape(rows, columns, h, w, c).swapaxes(1, 2).reshape(rows * h, columns * w, c)


def image(tag, tensor, rescale=1, dataformats="NCHW"):
    """Returns the summary of an image, or of a grid of images. dataformats names the dimensions."""
    from PIL import Image
    tensor, letters = np.asarray(to_arrays(tensor)), dataformats.upper()
    if tensor.ndim != len(letters) or sorted(letters) not in map(sorted, ("HW", "CHW", "NCHW")):
        raise AssertionError("size of input tensor and input format are different. "
                             f"tensor shape: {tensor.shape}, input_format: {dataformats}")
    tensor = tensor.transpose([letters.index(letter) for letter in "NHWC" if letter in letters])
    tensor = tensor if "C" in letters else tensor[..., None]
    tensor = _grid(tensor) if "N" in letters else tensor
    tensor = np.repeat(tensor, 3, -1) if tensor.shape[-1] == 1 else tensor
    scale, (h, w, c) = 1 if tensor.dtype == np.uint8 else 255, tensor.shape
    picture = Image.fromarray((tensor.astype(np.float32) * scale).clip(0, 255).astype(np.uint8))
    picture = picture.resize((int(w * rescale), int(h * rescale)), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return _message(tag, image=Summary.Image(height=h, width=w, colorspace=c,
                                             encoded_image_string=file.getvalue()))


def _hparams_part(tag, **part):
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2 as pb
    content = pb.HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **part).SerializeToString()
    data = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content)
    return _message(f"_hparams_/{tag}", metadata=SummaryMetadata(plugin_data=data))


def hparams(hparam_dict=None, metric_dict=None, hparam_domain_discrete=None):
    """Returns the three messages of a run's hyperparameters: the experiment, the values and the end."""
    from tensorboard.plugins.hparams import api_pb2 as pb, plugin_data_pb2
    fields = {str: ("STRING", "string_value"), bool: ("BOOL", "bool_value"),
              int: ("FLOAT64", "number_value"), float: ("FLOAT64", "number_value")}
    start, infos = plugin_data_pb2.SessionStartInfo(), []
    for name, value in (hparam_dict or {}).items():
        value = value.item() if isinstance(value, (_C.Tensor, np.generic)) else value
        if value is None:
            continue
        if type(value) not in fields:
            raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")
        kind, field = fields[type(value)]
        setattr(start.hparams[name], field, value)
        infos.append(pb.HParamInfo(name=name, type=f"DATA_TYPE_{kind}"))
        for choice in (hparam_domain_discrete or {}).get(name, ()):
            infos[-1].domain_discrete.values.add(**{field: choice})
    metrics = [pb.MetricInfo(name=pb.MetricName(tag=name)) for name in metric_dict or {}]
    return (_hparams_part("experiment", experiment=pb.Experiment(hparam_infos=infos, metric_infos=metrics)),
            _hparams_part("session_start_info", session_start_info=start),
            _hparams_part("session_end_info", session_end_info=plugin_data_pb2.SessionEndInfo(
                status="STATUS_SUCCESS")))
