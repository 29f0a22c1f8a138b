# SPDX-License-Identifier: Apache-2.0
"""torch.utils.tensorboard.writer: SummaryWriter, based on the event files of the tensorboard
package."""
import os
import socket
import time
from datetime import datetime

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from phlox import _C

from . import summary

_C._name_missing(__name__)


class FileWriter(EventFileWriter):
    """An event file."""

    def add_event(self, event, step=None, walltime=None):
        """Adds an event. Default walltime: now."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        super().add_event(event)

    def add_summary(self, summary, global_step=None, walltime=None):
        """Adds a summary for a step."""
        self.add_event(Event(summary=summary), global_step, walltime)


class SummaryWriter:
    """Writes event files for TensorBoard.

    Args:
        log_dir (str): the folder. Default: a folder in runs/, named by time and host
        comment (str): the suffix of the default folder's name
        purge_step (int): hides events of earlier runs at this step and later
        max_queue, flush_secs (int): the size of the event queue, and the seconds between flushes
        filename_suffix (str): the suffix of the event files' names
    """

    # The limits of histogram buckets: from 1e-12 to 1e20, by a factor of 1.1, and their negatives.
    default_bins = np.cumprod([1e-12, *[1.1] * 773])
    default_bins = [*-default_bins[::-1], 0, *default_bins]

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120,
                 filename_suffix=""):
        now = datetime.now().strftime("%b%d_%H-%M-%S")
        self.log_dir = log_dir or os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.purge_step, self.all_writers = purge_step, {}
        self._options = max_queue, flush_secs, filename_suffix
        self._writer()
        if purge_step is not None:
            self.file_writer.add_event(Event(file_version="brain.Event:2"), purge_step)
            begun = SessionLog(status=SessionLog.START)
            self.file_writer.add_event(Event(session_log=begun), purge_step)

    def _writer(self, below=""):
        """Returns the event file of a subfolder. Opens it on first use, and again after close()."""
        path = os.path.join(self.log_dir, below) if below else os.fspath(self.log_dir)
        if path not in self.all_writers:
            self.all_writers[path] = FileWriter(path, *self._options)
        return self.all_writers[path]

    file_writer = property(_writer, doc="The event file of log_dir.")

    def get_logdir(self):
        """Returns the folder of the event files."""
        return self.log_dir

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None):
        """Adds a scalar."""
        self._writer().add_summary(summary.scalar(tag, scalar_value), global_step, walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Adds scalars for a common chart. Each has a subfolder."""
        messages = {f"{main_tag.replace('/', '_')}_{tag}": summary.scalar(main_tag, value)
                    for tag, value in tag_scalar_dict.items()}
        for folder, message in messages.items():
            self._writer(folder).add_summary(message, global_step, walltime)

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None,
                      max_bins=None):
        """Adds a histogram of a tensor's elements."""
        bins = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        message = summary.histogram(tag, values, bins, max_bins)
        self._writer().add_summary(message, global_step, walltime)

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        """Adds an image: floats in [0, 1] or uint8."""
        message = summary.image(tag, img_tensor, dataformats=dataformats)
        self._writer().add_summary(message, global_step, walltime)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """Adds a grid of images."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """Adds a matplotlib figure, or a list of figures as a grid."""
        from matplotlib import pyplot
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        figures, pictures = figure if isinstance(figure, list) else [figure], []
        for one in figures:
            canvas = FigureCanvasAgg(one)
            canvas.draw()
            pictures.append(np.asarray(canvas.buffer_rgba())[..., :3])
            if close:
                pyplot.close(one)
        self.add_image(tag, np.stack(pictures), global_step, walltime, "NHWC")

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        """Adds a Markdown text."""
        self._writer().add_summary(summary.text(tag, text_string), global_step, walltime)

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None,
                    global_step=None):
        """Adds hyperparameters and the resulting metrics, in a subfolder."""
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        messages = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        with SummaryWriter(os.path.join(self.log_dir, run_name or str(time.time()))) as run:
            for message in messages:
                run.file_writer.add_summary(message, global_step)
            for name, value in metric_dict.items():
                run.add_scalar(name, value, global_step)

    def __getattr__(self, name):
        lacks = _C._lacks("utils.tensorboard.SummaryWriter", name)
        raise AttributeError(f"'SummaryWriter' object has no attribute '{name}'" + lacks * (
            f": SummaryWriter.{name} is not implemented in Phlox"))

    def flush(self):
        """Writes all pending events."""
        for writer in self.all_writers.values():
            writer.flush()

    def close(self):
        """Writes all pending events and closes the files."""
        while self.all_writers:
            self.all_writers.popitem()[1].close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
