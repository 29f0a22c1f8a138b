// SPDX-License-Identifier: Apache-2.0
// Backends as lanes, with a bar for each device or for the reason why a backend is not used. The
// data: rows [backend, devices, reason, path of the library].
"use strict";

const USED = "#3ca951", UNUSED = "#b4bcc5";

function showDevices(rows) {
  const most = Math.max(1, ...rows.map(row => row[1].length));
  const lanes = rows.map(([name, devices, reason, library]) => {
    const lane = {name, note: reason ? "not used" : "used", height: 30};
    const bars = devices.map((device, i) => ({name: name === "cpu" || devices.length === 1 && !device.bytes ? device.name : `${i}: ${device.name}`,
      start: i, end: devices.length === 1 ? most : i + 1, device, color: reason ? UNUSED : USED}));
    if (!devices.length) bars.push({name: reason, start: 0, end: most, color: UNUSED});
    for (const bar of bars) Object.assign(bar, {lane, reason, library, lines: reason});
    lane.levels = [bars];
    return lane;
  });
  const used = rows.filter(row => !row[2]).map(row => row[0]);
  summary([`used: ${used.join(", ")}`, {text: "used", color: USED}, {text: "not used", color: UNUSED}]);
  show({Devices: {lanes, start: 0, end: most, step: rough => Math.max(1, decimalStep(rough)), text: (at, step) => step ? `device ${Math.round(at)}` : `${Math.ceil(at)} devices`,
    tip: bar => bar.reason || bar.name, select(bar) {
      if (!bar) return details([["", "Backends in the order tried, then backends for collectives. The first one with devices serves devices of type cuda. Click a bar for its properties or the reason."], ["", HELP]]);
      const {device, reason, library} = bar, rows = [["backend", bar.lane.name]];
      for (const [name, value] of Object.entries(device || {})) rows.push(name === "bytes" ? ["memory", bytesText(value)] : [name, value]);
      return details([...rows, ...(reason ? [["not used", reason]] : []), ...(library ? [["library", library]] : [])]);
    }}});
}
