// SPDX-License-Identifier: Apache-2.0
// IPC handles: the name of a memory file followed by two numbers. The core writes and reads the
// name.
#include "sim/sim.h"

#include <string.h>
#include <sys/stat.h>

px_status px__sim_share_file(px_ipc_handle *out, int file, px__sim_handle numbers) {
  *out = (px_ipc_handle){{0}};
  PX__SIM_TRY(px__sim.core->file_share(out, file));
  memcpy(out->bytes + PX_FILE_HANDLE, &numbers, sizeof numbers);
  return PX_OK;
}

px__sim_handle px__sim_numbers(const px_ipc_handle *handle) {
  px__sim_handle numbers;
  memcpy(&numbers, handle->bytes + PX_FILE_HANDLE, sizeof numbers);
  return numbers;
}

size_t px__sim_file_bytes(int file) {
  struct stat info;
  return fstat(file, &info) == 0 && info.st_size > 0 ? (size_t)info.st_size : 0;
}
