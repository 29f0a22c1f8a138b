# SPDX-License-Identifier: Apache-2.0
"""torch.utils.tensorboard.writer: SummaryWriter, over files of events of the tensorboard package."""
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
    """A file of events, to which summaries are added."""

    def add_event(self, event, step=None, walltime=None):
        """Adds an event, of now unless walltime tells another time."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        super().add_event(event)

    def add_summary(self, summary, global_step=None, walltime=None):
        """Adds a summary, of a step."""
        self.add_event(Event(summary=summary), global_step, walltime)


class SummaryWriter:
    """Writes what a run tells to files of events, for TensorBoard.

    Args:
        log_dir (str): the folder; by default one below runs/, named after time and machine
        comment (str): the end of that name
        purge_step (int): what earlier runs told of this step and later ones is forgotten
        max_queue, flush_secs (int): how many events wait, and for how long
        filename_suffix (str): the end of the files' names
    """

    # The limits of the histograms' buckets: from 1e-12 to 1e20, each 1.1 times the one before.
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
        """The file of a folder below, made when it is written to, and again after close()."""
        path = os.path.join(self.log_dir, below) if below else os.fspath(self.log_dir)
        if path not in self.all_writers:
            self.all_writers[path] = FileWriter(path, *self._options)
        return self.all_writers[path]

    file_writer = property(_writer, doc="The file of the folder itself.")

    def get_logdir(self):
        """The folder."""
        return self.log_dir

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None):
        """A number of a step."""
        self._writer().add_summary(summary.scalar(tag, scalar_value), global_step, walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Numbers that belong in one chart: each has a folder of its own."""
        messages = {f"{main_tag.replace('/', '_')}_{tag}": summary.scalar(main_tag, value)
                    for tag, value in tag_scalar_dict.items()}
        for folder, message in messages.items():
            self._writer(folder).add_summary(message, global_step, walltime)

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None,
                      max_bins=None):
        """How the numbers of a tensor are spread."""
        bins = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        message = summary.histogram(tag, values, bins, max_bins)
        self._writer().add_summary(message, global_step, walltime)

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        """A picture of numbers from 0 to 1, or of bytes."""
        message = summary.image(tag, img_tensor, dataformats=dataformats)
        self._writer().add_summary(message, global_step, walltime)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """Pictures, as a grid."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """A figure of matplotlib, or a list of them as a grid."""
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
        """A text, in Markdown."""
        self._writer().add_summary(summary.text(tag, text_string), global_step, walltime)

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None,
                    global_step=None):
        """The settings of a run and what came of it, in a folder of its own."""
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
        """Writes what waits."""
        for writer in self.all_writers.values():
            writer.flush()

    def close(self):
        """Writes what waits, and ends the files."""
        while self.all_writers:
            self.all_writers.popitem()[1].close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
