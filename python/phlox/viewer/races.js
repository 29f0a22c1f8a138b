// SPDX-License-Identifier: Apache-2.0
// Reports of the race checker: streams as lanes, the two operations of each race as bars, and an
// arrow for the missing wait. Races of the same lines and streams are drawn once. Reports of other
// forms (host memory, waits for unrecorded events) have one bar.
"use strict";

const READ = "#4269d0", WRITE = "#e8743b";
const ACCESS = /^  (.+?) (reads|writes|read|wrote) (?:bytes \[[^)]*\) of )?it on (?:the )?(.+? of cuda:\d+|host)(?: \(operation (\d+)\))?(.*)$/;

// Returns {later, earlier}; each {op, verb, stream, number, at}, or null.
function readRace(report) {
  const found = report.split("\n").map(line => ACCESS.exec(line)).filter(Boolean)
    .map(([, op, verb, stream, number, at]) => ({op, verb, stream, number, at: at.replace(/^, by .*? or earlier/, "").replace(/^ at /, "").trim()}));
  return {later: found[0] || null, earlier: found[1] || null};
}

function addBar(lanes, access, start, race) {
  const name = access ? access.stream : "other reports";
  if (!lanes.has(name)) lanes.set(name, {name, levels: [[]]});
  const lane = lanes.get(name), line = access ? access.at.replace(/^.*\//, "") : "";
  const bar = {name: access ? `${access.op}  ${line}` : race.report, start, end: start + 1.4, lane, race, access, lines: access ? access.at : "",
               color: access && /^w/.test(access.verb) ? WRITE : READ};
  lane.levels[0].push(bar);
  return bar;
}

function showRaces(reports) {
  const races = new Map(), lanes = new Map();
  for (const report of reports) {
    const {later, earlier} = readRace(report), key = later ? [later, earlier].map(a => a && [a.op, a.verb, a.stream, a.at].join()).join(" / ") : report;
    if (races.has(key)) races.get(key).count++;
    else races.set(key, {report, later, earlier, count: 1});
  }
  [...races.values()].forEach((race, i) => {
    const after = addBar(lanes, race.later, 2.5 * i + (race.earlier ? 0.9 : 0.5), race);
    race.arrow = race.earlier && {from: addBar(lanes, race.earlier, 2.5 * i, race), to: after, missing: true, label: "missing wait"};
    if (race.arrow) race.arrow.at = 2.5 * i + 1.15;
  });
  const drawn = [...lanes.values()].sort((a, b) => a.name.localeCompare(b.name, "en", {numeric: true}));
  for (const lane of drawn) {
    lane.levels[0].sort((a, b) => a.start - b.start);
    lane.height = 64;
  }
  const all = [...races.values()], repeated = reports.length - all.length;
  summary([`${reports.length} races${repeated ? `, ${all.length} without repetitions` : ""}`, {text: "write", color: WRITE}, {text: "read", color: READ}, {text: "missing wait", color: "var(--pick)"}]);
  show({Races: {lanes: drawn, start: -0.1, end: Math.max(2.4, 2.5 * all.length - 0.1), first: Math.min(7.4, Math.max(2.4, 2.5 * all.length - 0.1)), step: () => 2.5, text: (at, step) => step ? `race ${Math.round(at / 2.5) + 1}` : `${Math.max(1, Math.round(at / 2.5))} races`,
    arrows: () => all.map(race => race.arrow).filter(Boolean), tip: bar => bar.access ? `${bar.access.op} ${bar.access.verb}, ${bar.access.at}` : bar.name,
    select(bar) {
      if (!bar) return details([["", reports.length ? "Each race is a pair of operations on the same bytes without an order. Click one for its report." : "No race was found."], ["", HELP]]);
      const {race} = bar, other = bar === race.arrow?.from ? race.arrow.to : race.arrow?.from;
      return details([["report", race.report], ["reports", race.count], ...(other ? [["other side", {text: other.name, go: other}]] : [])]);
    }}});
}
