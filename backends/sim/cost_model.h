// SPDX-License-Identifier: Apache-2.0
// Cost model of mode `schedule`: parameters of the modelled machine and virtual times of
// operations.
#pragma once
#include "sim/sim.h"

// XX(name, value): nanoseconds, bytes/s or operations/s. Defaults model an H200, as published peaks
// times the measured efficiency:
// - memory: 4/5 of 4.8 TB/s
// - links: about 9/10 of 450 GB/s a direction between devices (bench/calibrate reached 393) and of
// PCIe 5.0
// - bfloat16 products: 55 % of 989 TFLOP/s, reached by whole transformer steps in the README's
// measurements
// - TF32 products: 74 % of 495 TFLOP/s
// - convolution: fraction of either rate reached by convolutions
//
// issue_ns is the host's time for a launch from Python, a copy, a fill or a call; plan_ns is added
// for a convolution, executed by a library's plan. kernel_ns and copy_ns are the device's minimum
// times; copy_ns was measured by calibrate. wait_ns is the delay of a stream after a wait on
// another stream of its device. peer_wait_ns is the delay across devices, signalled through shared
// memory. Chains of the smallest kernels took 1.03 and 6.03 us more a wait on two H200s. link and
// link_ns of 0 select PHLOX_SIM_LINK_BANDWIDTH and _LATENCY. A node holds `node` ranks; nodes are
// joined by a network of 400 Gbit/s a rank. `ranks`: number of ranks to model in collectives, if
// more than there are.
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
// Reads lines `name = number` from a file; an empty path reads nothing. PX_VALUE for an invalid
// line.
px_status px__sim_machine_read(const char *path);
// Host time to issue a launch, or any other operation (NULL).
int64_t px__sim_host_cost(const px_launch *launch);
// Virtual nanoseconds. `detour`: between devices without peer access, through the host.
int64_t px__sim_launch_cost(const px_launch *launch);
int64_t px__sim_copy_cost(const px_copy *copy, bool detour);
int64_t px__sim_fill_cost(size_t bytes);
// Delay until a stream of `device` observes a mark reached on device `other`. -1 (graphs): the same
// device.
int64_t px__sim_wait_cost(int device, int other);
