#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""softverbs_command.py COMMAND...: gives each command of softverbs to every process on the fabric that PVN_SOFTVERBS_DIR
names, one after the other, and prints the answers. Fails when a command has reached nobody."""
import ctypes
import os
import sys

SLOTS = 32
ESRCH = 3

lib = ctypes.CDLL(os.environ["NCCL_PVRDMA_VERBS_LIB"])
lib.ibv_get_device_list(ctypes.byref(ctypes.c_int()))  # which reads the environment
for line in sys.argv[1:]:
    reached = 0
    for slot in range(SLOTS):
        reply = ctypes.create_string_buffer(2048)
        rc = lib.sv_peer_command(slot, line.encode(), reply, len(reply))
        if rc == 0:
            reached += 1
            print(reply.value.decode(), end="")
        elif rc != ESRCH:
            sys.exit(f"{line}: process {slot} answers with error {rc}: {reply.value.decode()}")
    if not reached:
        sys.exit(f"{line}: there is no process on this fabric")
