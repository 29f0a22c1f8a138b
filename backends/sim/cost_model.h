// SPDX-License-Identifier: Apache-2.0
// The figures of the machine whose time mode `schedule` tells, and what they make of work.
#pragma once
#include "sim/sim.h"

// XX(name, value): nanoseconds, bytes a second, operations a second. The defaults are those of an
// H200, published figures times what is reached of them: of memory (4.8 TB/s) four fifths, of
// links (450 GB/s a direction between devices, of which bench/calibrate reached 393; PCIe 5.0)
// nearly nine tenths, and of dense products (989 TFLOP/s in bfloat16) 55 in a hundred, which is
// what whole steps of transformers reach by the README's measurements; of products in TF32 (495
// TFLOP/s) 74, and convolutions reach a share of both. issue_ns is what the host takes for a
// launch from Python, a copy, a fill or a call, and plan_ns what it takes more for a convolution,
// whose plan a library carries out; kernel_ns and copy_ns are what the device takes for the
// smallest one (a copy by calibrate, too). A stream goes on wait_ns after what it waited for on
// another stream of its device, and peer_wait_ns after that of another device, as the signal goes
// through memory that both see: chains of the smallest kernels took 1.03 and 6.03 us more for each
// wait, on two H200s. Links of 0 are as PHLOX_SIM_LINK_BANDWIDTH and _LATENCY say. A node
// has so many ranks, and beyond it there is a network of 400 Gbit/s a rank. `ranks`: how many a
// collective is to take the time of, if there are fewer.
#define PX__SIM_FIGURES(XX) \
  XX(issue_ns, 6000) \
  XX(plan_ns, 25000) \
  XX(kernel_ns, 2000) \
  XX(copy_ns, 2300) \
  XX(wait_ns, 1000) \
  XX(peer_wait_ns, 6000) \
  XX(memory, 3.8e12) \
  XX(to_device, 55e9) \
  XX(to_host, 55e9) \
  XX(peer, 390e9) \
  XX(detour, 25e9) \
  XX(link, 0) \
  XX(link_ns, 0) \
  XX(node, 8) \
  XX(network, 45e9) \
  XX(network_ns, 5000) \
  XX(ranks, 0) \
  XX(float64, 37e12) \
  XX(float32, 50e12) \
  XX(tfloat32, 366e12) \
  XX(float16, 550e12) \
  XX(bfloat16, 550e12) \
  XX(float8, 1100e12) \
  XX(convolution, 0.5)
typedef enum px__sim_figure_name {
#define XX(name, value) PX__SIM_##name,
  PX__SIM_FIGURES(XX)
#undef XX
      PX__SIM_FIGURE_COUNT
} px__sim_figure_name;

double px__sim_figure(px__sim_figure_name name);
// Reads lines `name = number` of a file; none if the path is empty. PX_VALUE for what is no figure.
px_status px__sim_machine_read(const char *path);
// What the host takes to issue a launch, or something else (NULL).
int64_t px__sim_host_cost(const px_launch *launch);
// Virtual nanoseconds. `detour`: between devices that are no peers, by way of the host.
int64_t px__sim_launch_cost(const px_launch *launch);
int64_t px__sim_copy_cost(const px_copy *copy, bool detour);
int64_t px__sim_fill_cost(size_t bytes);
// Until a stream of `device` sees that one of device `other` has reached a mark. -1, as in graphs:
// the same.
int64_t px__sim_wait_cost(int device, int other);
