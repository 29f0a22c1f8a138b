# SPDX-License-Identifier: Apache-2.0
"""Pages to look at: HTML with its data and scripts inside, and in a browser if there is one."""
import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import browser
import phlox
from phlox import _viewer

TRAIN = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.DataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.rand(64, 64).cuda(), torch.randint(0, 10, (64,)).cuda()
for step in range(40):
    with torch.profiler.record_function(f"ProfilerStep#{step}"):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
"""
REMEMBER = """
import sys
import torch
torch.cuda.memory._record_memory_history(max_entries=100000)
held = {}
for device in "cuda:0", "cuda:1":
    kept = [torch.zeros(1 << 20, device=device) for _ in range(3)]
    more = torch.ones(2 << 20, device=device)
    del more
    del kept[1]
    kept.append(kept[0] + 1)
    print(torch.cuda.max_memory_allocated(device), torch.cuda.memory_reserved(device))
    held[device] = kept
torch.cuda.memory._dump_snapshot(sys.argv[1])
"""
RACE = """
import torch
side = torch.cuda.Stream()
x = torch.empty(100, device="cuda").normal_()
y = torch.ones(100, device="cuda")
with torch.cuda.stream(side):
    x.sum()
torch.cuda.synchronize()
for i in range(2):
    y.add_(1)
    with torch.cuda.stream(side):
        y.sum()
print("ended")
"""
needs_browser = unittest.skipUnless(browser.CHROMIUM, "no Chromium: install Debian's chromium")


def run(*arguments, **settings):
    environment = {**os.environ, "PHLOX_SIM_DEVICES": "2", "PHLOX_SIM_MODE": "schedule", **settings}
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True, env=environment).stdout


class Page(html.parser.HTMLParser):
    """The elements, references and data of a page."""

    def __init__(self, path):
        super().__init__()
        self.open, self.names, self.links, self.texts = [], [], [], {}
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())
        self.data = json.loads(self.texts["script application/json"])

    def handle_starttag(self, tag, attributes):
        self.names.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "link", "input"):
            self.open.append((tag + " " + (dict(attributes).get("type") or "")).strip())

    def handle_endtag(self, tag):
        assert self.open.pop().split()[0] == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if self.open:
            self.texts[self.open[-1]] = data


class Viewer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    @classmethod
    def program(cls, name, text):
        with open(cls.path(name), "w") as file:
            file.write(text)
        return cls.path(name)

    def check_file(self, page):
        """A page is balanced HTML that refers to nothing outside."""
        self.assertEqual(page.open, [])
        self.assertEqual(page.links, ["data:,"])
        self.assertNotRegex(page.texts["style"] + page.texts["script"], r"https?:|@import|url\(|\bfetch\(|XMLHttpRequest|import\(")

    def bar(self, page, name):
        """The middle of the first bar of a name, in the page's pixels."""
        return page.run("(() => { const box = viewer.canvas.getBoundingClientRect(), chart = viewer.chart;"
                        f" const span = [...chart.items()].find(s => s.name === {json.dumps(name)});"
                        " const [x, y] = chart.point(span, Math.max(span.start, chart.start) / 2 + Math.min(span.end, chart.end) / 2);"
                        " return [x + box.left, y + box.top] })()")

    def text(self, page, element):
        return page.run(f"document.getElementById('{element}').innerText")


class Profile(Viewer):
    """python3 -m phlox.profile writes a page beside the picture."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.out = run("-m", "phlox.profile", "-o", cls.path("out.svg"), cls.program("train.py", TRAIN))
        cls.page = cls.path("out.html")

    def test_page_is_complete(self):
        page = Page(self.page)
        self.check_file(page)
        self.assertEqual(self.out.split()[-2:], [self.path("out.svg"), self.page])
        self.assertEqual(page.texts["title"], "train.py")
        texts = page.data["texts"]
        self.assertLessEqual({"kernel", "copy", "cpu_op", "user_annotation"}, {texts[span[5]] for span in page.data["spans"]})
        self.assertLessEqual({"aten::linear", "addmm", "ProfilerStep#39"}, {texts[span[0]] for span in page.data["spans"]})
        self.assertTrue(any("train.py(11)" in texts[span[7]] for span in page.data["spans"]))
        self.assertLess(os.path.getsize(self.page), 1 << 20)

    def test_names_cannot_end_the_script(self):
        name = "</script><script>alert(1)</script>@data@"
        _viewer.write(self.path("hostile.html"), name, "profile", {"spans": [], "memory": [], "texts": [name]})
        page = Page(self.path("hostile.html"))
        self.assertEqual(page.names.count("script"), 2)
        self.assertEqual((page.texts["title"], page.data["texts"]), (name, [name]))
        if not browser.CHROMIUM:
            return
        with browser.Browser(self.path("hostile.html")) as shown:
            self.assertEqual((shown.run("document.title"), shown.run("viewer.chart.lanes.length"), shown.problems), (name, 0, []))

    @needs_browser
    def test_forty_steps_fit_one_screen(self):
        with browser.Browser(self.page) as page:
            names = page.run("viewer.chart.shown.map(row => row.lane.name)")
            self.assertRegex(" ".join(names), r"^(cuda:\d stream \d+ )+device memory ranges host$")
            self.assertLessEqual(page.run("viewer.chart.bottom"), page.run("viewer.canvas.clientHeight"))
            self.assertIn("cuda:1 busy", self.text(page, "summary"))
            x, y = page.run("(() => { const box = viewer.canvas.getBoundingClientRect(); return [box.left + 40, box.top + viewer.chart.shown.at(-1).y + 20] })()")
            page.click(x, y)  # opens the threads: few lanes, since most run one after another
            self.assertEqual(page.run("viewer.chart.shown.length") - len(names), page.run("viewer.chart.lanes.at(-1).lanes.length"))
            self.assertLess(page.run("viewer.chart.lanes.at(-1).lanes.length"), 10)
            self.assertEqual(page.problems, [])

    @needs_browser
    def test_zoom_move_search_and_click(self):
        with browser.Browser(self.page) as page:
            span = page.run("viewer.chart.end - viewer.chart.start")
            page.wheel(700, 200, -800)
            page.wait(f"viewer.chart.end - viewer.chart.start < {span} / 2")
            start = page.run("viewer.chart.start")
            page.drag(700, 200, 600, 200)
            page.wait(f"viewer.chart.start > {start}")
            page.click(*page.run("(() => { const box = document.getElementById('search').getBoundingClientRect(); return [box.left + 9, box.top + 9] })()"))
            page.type("addmm", enter=True)
            page.wait("viewer.chart.picked && viewer.chart.picked.name.toLowerCase().includes('addmm')")
            self.assertRegex(self.text(page, "found"), r"^[\d,]+ found")
            page.click(*self.bar(page, page.run("viewer.chart.picked.name")))
            details = self.text(page, "details")
            for text in "addmm", "train.py(11): <module>", "issued by", "aten::_linear", "critical path":
                self.assertIn(text, details)
            page.run("document.querySelector('#details button').click()")  # the op that issued it, in its thread
            self.assertTrue(page.run("viewer.chart.lanes.at(-1).open && viewer.chart.picked.kind === 'op'"))
            page.run("document.getElementById('fit').click()")
            self.assertEqual(page.run("viewer.chart.end - viewer.chart.start"), span)
            self.assertEqual(page.problems, [])

    @needs_browser
    def test_flame_graphs_add_up(self):
        with browser.Browser(self.page, dark=True) as page:
            for view, name in ("Flame: device time", "train.py(11): <module>"), ("Flame: host time", "train.py(12): <module>"):
                page.run(f"[...document.querySelectorAll('[role=tab]')].find(tab => tab.innerText === '{view}').click()")
                page.click(*self.bar(page, name))
                self.assertRegex(self.text(page, "details"), re.escape(name) + r"\s+time\s+[\d.,]+ [mµ]s \(\d")
                self.assertTrue(page.run("viewer.chart.lanes[0].levels.flat().every(bar => Math.abs([...bar.node.inner.values()]"
                                         ".reduce((sum, n) => sum + n.total, bar.node.self) - bar.node.total) < 1)"))
            kernels = page.run("viewer.charts['Flame: device time'].options.end")
            self.assertEqual(kernels, sum(span[2] for span in Page(self.page).data["spans"] if span[6] >= 0))
            self.assertEqual(page.problems, [])


@unittest.skipIf(phlox.cuda.device_count() < 2, "requires two devices")
class Memory(Viewer):
    """python3 -m phlox.memory writes a page beside the picture."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        out = run("-m", "phlox", cls.program("remember.py", REMEMBER), cls.path("memory.pickle"))
        cls.figures = [list(map(int, line.split())) for line in out.splitlines()]
        cls.out = run("-m", "phlox.memory", cls.path("memory.pickle"))
        cls.page = cls.path("memory.html")

    def test_page_is_complete(self):
        page = Page(self.page)
        self.check_file(page)
        self.assertEqual(self.out.split(), [self.path("memory.svg"), self.page])
        self.assertEqual([any(events) for events in page.data["devices"]], [True, True])
        self.assertTrue(any("remember.py" in frame[0] for stack in page.data["stacks"] for frame in stack))

    def test_snapshot_without_events_and_addresses_of_blocks(self):
        from phlox.memory import _page
        block = {"size": 512, "state": "active_allocated"}
        segment = {"device": 0, "stream": 0, "total_size": 1024, "address": 4096, "blocks": [block, dict(block, state="inactive")]}
        data = _page({"segments": [segment], "device_traces": [[]]}, 12)
        self.assertEqual([row[:2] for row in data["segments"][0]["blocks"]], [(4096, 512), (4608, 512)])
        if not browser.CHROMIUM:
            return
        _viewer.write(self.path("few.html"), "few", "memory", data)
        with browser.Browser(self.path("few.html")) as page:
            self.assertEqual(page.run("viewer.chart.lanes[0].levels[0].map(block => block.name).join()"), "no stack recorded,free")
            self.assertEqual(page.problems, [])

    @needs_browser
    def test_owners_add_up(self):
        with browser.Browser(self.page) as page:
            peaks = page.run("viewer.chart.lanes.map(lane => [Math.max(...lane.sums), lane.outline.at(-1)])")
            self.assertEqual(peaks, self.figures)
            self.assertTrue(page.run("viewer.chart.lanes.every(lane => lane.layers.every(layer => layer.values.every(bytes => bytes >= 0)))"))
            x, y = page.run("(() => { const box = viewer.canvas.getBoundingClientRect(), row = viewer.chart.shown[0];"
                            " return [box.right - 20, box.top + row.y + row.lane.height - 4] })()")
            page.click(x, y)
            self.assertRegex(self.text(page, "details"), r"(?s)12 MiB of \d+ MiB reserved.*owners\s+8 MiB +\w+ +remember\.py:7\s+4 MiB +add +remember\.py:11")
            page.wheel(x, y, -400)
            page.wait("viewer.chart.end - viewer.chart.start < viewer.chart.options.end")
            self.assertEqual(page.problems, [])

    @needs_browser
    def test_blocks_and_search(self):
        with browser.Browser(self.page) as page:
            page.run("[...document.querySelectorAll('[role=tab]')].at(-1).click()")
            page.run("document.getElementById('search').focus()")
            page.type("add", enter=True)
            page.wait("viewer.chart.picked")
            self.assertRegex(self.text(page, "details"), r"(?s)4 MiB at 0x.*active allocated.*add +remember\.py:11")
            self.assertEqual(page.problems, [])


class Races(Viewer):
    """python3 -m phlox.races runs a program to its end and draws its races."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.out = run("-m", "phlox.races", "-o", cls.path("races.html"), cls.program("race.py", RACE))

    def test_page_is_complete(self):
        page = Page(self.path("races.html"))
        self.check_file(page)
        self.assertRegex(self.out, r"(?s)^ended\nPhlox found a race.*4 races\n[^\n]*races\.html\n$")
        self.assertEqual(len(page.data), 4)

    @needs_browser
    def test_missing_waits_are_drawn_once(self):
        with browser.Browser(self.path("races.html")) as page:
            self.assertEqual(page.run("viewer.chart.lanes.map(lane => lane.name).join()"), "default stream of cuda:0,stream 1 of cuda:0")
            arrows = page.run("viewer.chart.options.arrows().map(a => [a.from.name, a.to.name, a.from.race.count])")
            self.assertEqual(arrows, [["normal  race.py:4", "sum  race.py:7", 1], ["add  race.py:10", "sum  race.py:12", 2], ["sum  race.py:12", "add  race.py:10", 1]])
            page.click(*self.bar(page, "normal  race.py:4"))
            self.assertIn("stream 1 of cuda:0 must wait for the default stream", self.text(page, "details"))
            page.run("document.querySelector('#details button').click()")
            self.assertEqual(page.run("viewer.chart.picked.name"), "sum  race.py:7")
            self.assertEqual(page.problems, [])

    @needs_browser
    def test_no_races(self):
        run("-m", "phlox.races", "-o", self.path("none.html"), self.program("good.py", "import torch"))
        with browser.Browser(self.path("none.html")) as page:
            self.assertIn("No race was found", self.text(page, "details"))
            self.assertEqual(page.problems, [])


class Devices(Viewer):
    """python3 -m phlox.devices names the devices of each backend, or the reason for having none."""

    def devices(self, **settings):
        out = run("-m", "phlox.devices", "-o", self.path("devices.html"), **settings)
        page = Page(self.path("devices.html"))
        self.check_file(page)
        return out, {name: (devices, reason) for name, devices, reason, _ in page.data}

    def test_simulated_devices(self):
        out, rows = self.devices(PHLOX_BACKENDS="sim", PHLOX_SIM_DEVICES="3")
        self.assertRegex(out, r"(?m)^sim    3 x Phlox simulated device$")
        self.assertEqual(rows["sim"][1], "")
        self.assertRegex(rows["cuda"][1], "not installed|driver|No CUDA GPUs|not in PHLOX_BACKENDS=sim")

    def test_reasons(self):
        out, rows = self.devices(PHLOX_BACKENDS="nosuch,sim", PHLOX_SIM_DEVICES="0")
        self.assertRegex(out, r"(?m)^nosuch not used: libphlox_nosuch\.so is not installed$")
        self.assertRegex(out, r"(?m)^sim    not used: No CUDA GPUs are available\. PHLOX_SIM_DEVICES=2 in the environment")
        self.assertEqual(rows["sim"][0], [])
        self.assertIn("PHLOX_SIM_DEVICES", self.devices(PHLOX_SIM_DEVICES="many")[1]["sim"][1])
        self.assertIn("not in PHLOX_BACKENDS=nosuch", self.devices(PHLOX_BACKENDS="nosuch")[1]["sim"][1])
        self.assertRegex(rows["mpi"][1] or "available", "the collective backend 'mpi' is unavailable|available")

    def test_no_folder_of_backends(self):
        done = subprocess.run([sys.executable, "-m", "phlox.devices"], env=dict(os.environ, PHLOX_BACKEND_PATH="/nowhere"), capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "phlox.devices: error: .*PHLOX_BACKEND_PATH")
        self.assertNotIn("Traceback", done.stderr)

    def test_lists_of_the_extension(self):
        rows = {name: (listed, library, why) for name, listed, library, why in phlox._C._backends()}
        self.assertLessEqual({"sim", "cuda"}, set(rows))
        self.assertTrue(os.path.samefile(rows["sim"][1], os.path.join(os.path.dirname(phlox.__file__), "libphlox_sim.so")))
        with self.assertRaisesRegex(NotImplementedError, "'nosuch' is unavailable"):
            phlox._C._engine_library("nosuch")
        with self.assertRaisesRegex(ValueError, "invalid name"):
            phlox._C._engine_library("../x")
        self.assertLessEqual({"PHLOX_SIM_DEVICES", "RANK", "PET_*"}, set(phlox._C._environment()))

    @needs_browser
    def test_page(self):
        self.devices(PHLOX_BACKENDS="nosuch,sim", PHLOX_SIM_DEVICES="3")
        with browser.Browser(self.path("devices.html")) as page:
            page.click(*self.bar(page, "2: Phlox simulated device"))
            self.assertRegex(self.text(page, "details"), r"memory\s+4 GiB")
            page.click(*self.bar(page, "libphlox_nosuch.so is not installed"))
            self.assertRegex(self.text(page, "details"), r"not used\s+libphlox_nosuch")
            self.assertEqual(page.problems, [])

    def test_report_of_environment(self):
        done = run("-m", "phlox.env", PHLOX_SIM_DEVICES="3", PET_NNODES="1", PHLOX_STORE_SECRET="x1y2", PHLOX_SIM_DEVICE="4", UNRELATED="z3")
        for line in "  PHLOX_SIM_DEVICES=3", "  PET_NNODES=1", "  PHLOX_STORE_SECRET=(hidden)", "  PHLOX_SIM_DEVICE=4":
            self.assertIn(line, done.split("\n"))
        self.assertNotRegex(done, "x1y2|UNRELATED")


class Failures(Viewer):
    """A program that ends before it computes leaves nothing to report, and the message of its own failure."""

    def test_program_that_fails_at_once(self):
        done = subprocess.run([sys.executable, "-m", "phlox.profile", "-o", self.path("none.svg"), self.program("fails.py", "import nosuch")], capture_output=True, text=True)
        self.assertIn("No module named 'nosuch'", done.stderr)
        self.assertTrue(done.stderr.endswith("python3 -m phlox.profile: the profile is empty: there is nothing to draw\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
