# SPDX-License-Identifier: Apache-2.0
"""Names with markup, quotes, control characters or great length, in every picture and trace. Each output is read by a strict parser, and the name
comes back as it was. Control characters without a place in XML come back as their symbols."""
import gzip
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest
import xml.etree.ElementTree as ElementTree

os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import phlox as torch

NAMES = ["<script>alert(1)</script>", "</title></text></svg><script>alert(1)</script>", "a & b &lt; &#0; &x;", "'single' \"double\" \\u0041 \\",
         "]]> <![CDATA[ <!-- --> <?x ?>", "line\nbreak\r\ttab", "".join(map(chr, range(1, 32))), "\x7f\x80\x85\u2028\u2029\ufeff", "\u00e9\U0001f600\uffff",
         "%s%n{0}${x}", "x" * 10 ** 5, "\u00e9" * 10 ** 5]
SVG = "{http://www.w3.org/2000/svg}"


def in_xml(name):
    """The name as XML can hold it."""
    shown = "".join(chr(0x2400 + ord(c)) if c < " " and c not in "\t\n\r" else c for c in name)
    return shown.replace("\uffff", "\\xef\\xbf\\xbf")


def texts(picture, tag):
    """The texts of a picture's elements, all of which belong to SVG and have no handler of events."""
    root = ElementTree.fromstring(picture)
    for element in root.iter():
        assert element.tag in {SVG + name for name in ("svg", "style", "rect", "path", "text", "title", "g")}, element.tag
        assert not any(name.startswith("on") or "href" in name for name in element.keys())
    return [element.text for element in root.iter(SVG + tag)]


def no_constant(text):
    raise ValueError(text)


def read_json(text):
    """Parses strictly: no NaN, and no raw control character."""
    return json.loads(text, strict=True, parse_constant=no_constant)


def code_of(name):
    """A function of that name, in a file of that name, which calls its argument."""
    code = compile("def call(function, *args, **options):\n    return function(*args, **options)", name, "exec")
    space = {}
    exec(code, space)
    made = space["call"]
    made.__code__ = made.__code__.replace(co_name=name)
    return made


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad


@unittest.skipUnless(torch.cuda.device_count(), "requires a device")
class HostileNames(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def profile(self, name):
        """Profiles a range, a backward node, a file, a function and a thread of that name."""
        with torch.profiler.profile(with_stack=True, record_shapes=True) as prof:
            prof.add_metadata(name, name)
            with torch.profiler.record_function(name):
                x = torch.ones(2, device="cuda", requires_grad=True)
                y = type(name, (Function,), {}).apply(x)
                thread = threading.Thread(target=code_of(name), args=[lambda: y.sum().backward()], name=name)
                thread.start()
                thread.join()
        return prof

    def test_chrome_traces(self):
        for name in NAMES:
            prof = self.profile(name)
            for suffix, opened in ((".json", open), (".json.gz", gzip.open)):
                path = os.path.join(self.folder, "trace" + suffix)
                prof.export_chrome_trace(path)
                with opened(path, "rt", encoding="utf-8") as file:
                    trace = read_json(file.read())
            found = {event["name"] for event in trace["traceEvents"]}
            self.assertIn(name, found)
            self.assertIn(name + "Backward", found)
            self.assertEqual(trace[name], name)
            stacks = "".join(event["args"].get("Call stack", "") for event in trace["traceEvents"] if "args" in event)
            self.assertIn(f"{name}(2): {name}", stacks)

    def test_stacks_have_one_line_for_each_event(self):
        for name in NAMES:
            prof = self.profile(name)
            path = os.path.join(self.folder, "stacks.txt")
            prof.export_stacks(path, "self_cpu_time_total")
            with open(path, encoding="utf-8", newline="\n") as file:
                for line in file.read().split("\n")[:-1]:
                    self.assertRegex(line, r"(?s)^.+ \d+$")

    def test_profile_pictures(self):
        profiler = torch._C.autograd.profiler
        for name in NAMES:
            path = os.path.join(self.folder, "profile.svg")
            profiler._start(True, True, False, True, True, False)
            part = profiler._enter(name)
            torch.ones(4, device="cuda")
            torch.cuda.synchronize()
            profiler._leave(part)
            profiler._report(path)
            with open(path, "rb") as file:
                self.assertIn(in_xml(name), [text.rpartition(", ")[0] for text in texts(file.read(), "title")])

    def test_memory_pictures(self):
        for name in NAMES:
            torch.cuda.memory._record_memory_history(max_entries=100)
            x = code_of(name)(torch.ones, 1000, device="cuda")
            path = os.path.join(self.folder, "memory.pickle")
            torch.cuda.memory._dump_snapshot(path)
            torch.cuda.memory._record_memory_history(None)
            del x
            picture = os.path.join(self.folder, "memory.svg")
            done = subprocess.run([sys.executable, "-m", "phlox.memory", path, "-o", picture], capture_output=True, text=True, check=True,
                                  env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(torch.__file__)), "LC_ALL": "C", "PYTHONUTF8": "0"})
            self.assertEqual(done.stdout, f"{picture}\n{picture[:-4]}.html\n")
            with open(picture, "rb") as file:
                found = texts(file.read(), "title")
            self.assertTrue(any(text.endswith(f"  {in_xml(name.rpartition('/')[2])}:2") for text in found), (name[:99], found))

    def test_names_of_ops_in_memory_pictures(self):
        for name in NAMES:
            frames = [{"name": name, "filename": name, "line": 3}]
            event = {"action": "alloc", "addr": 0, "size": 9, "frames": frames}
            drawn = torch.cuda._draw_memory({"segments": [], "device_traces": [[event]]})
            self.assertEqual(texts(drawn, "title"), [in_xml(f"{name}  {name.rpartition('/')[2]}:3")])

    def test_snapshots_with_wrong_entries_are_refused(self):
        event = {"action": "alloc", "addr": 0, "size": 9, "frames": [{"name": "f", "filename": "f", "line": 3}]}
        block = {"state": "active_allocated", "address": 0, "size": 9}
        segment = {"device": 0, "total_size": 9, "blocks": [block]}
        wrong = [None, "x", b"", 1.5, [], {}, -1, 2 ** 63, -2 ** 63, 2 ** 63 - 1, 2 ** 80, "\0", "\ud800"]
        snapshots = []
        for value in wrong:
            snapshots += [{"segments": [segment], "device_traces": [[{**event, key: value}] * 3]} for key in event]
            snapshots += [{"segments": [{**segment, key: value}] * 3, "device_traces": [[event]]} for key in segment]
            snapshots += [{"segments": [{**segment, "blocks": [{**block, key: value}] * 3}], "device_traces": [[event]]} for key in block]
            snapshots += [{"segments": [segment], "device_traces": [[{**event, "frames": [{**event["frames"][0], key: value}]}]]} for key in ("name", "line")]
            snapshots += [value, {"segments": value, "device_traces": [[event]]}, {"segments": [segment], "device_traces": value},
                          {"segments": [segment], "device_traces": [value]}]
        for snapshot in snapshots:
            with self.subTest(snapshot=snapshot):
                try:
                    texts(torch.cuda._draw_memory(snapshot), "title")
                except ValueError as error:
                    self.assertTrue(str(error))
        path = os.path.join(self.folder, "x.pickle")
        for data in (b"", b"\x80\4.", b"cos\nsystem\n.", b"(i.", b"h\xff.", b"I1\n0b.", b"]q\0.", pickle.dumps(5), pickle.dumps({"segments": [None], "device_traces": [[]]})):
            with open(path, "wb") as file:
                file.write(data)
            done = subprocess.run([sys.executable, "-m", "phlox.memory", path], capture_output=True, text=True,
                                  env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(torch.__file__))})
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), (data, done.stderr))


if __name__ == "__main__":
    unittest.main()
