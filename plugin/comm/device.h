/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices that NCCL sees, physical ones first, in an order that is the same in every process of
 * a machine; then the virtual ones that NCCL had made of them.
 *
 * A device stays where it is until pvn_devices_unload, which is called when the library is unmapped
 * and no comm is left: NCCL from 2.28 on that keeps the plugin (NCCL_NET_PLUGIN_REF_COUNT) remembers how
 * many devices there are, virtual ones too, over a finalize and the next init. Any thread.
 */
#ifndef PVN_COMM_DEVICE_H
#define PVN_COMM_DEVICE_H

#include "connect/transport.h"

/*
 * Asks the transports. 0 even when there is no device; negative errno with *err when looking failed
 * or, with NCCL_PVRDMA_STRICT, when nothing usable was found. A second call changes nothing.
 */
int pvn_devices_load(struct pvn_err *err);
void pvn_devices_unload(void);
/* In a forked child: forgets the parent's devices, of which nothing is destroyed. */
void pvn_devices_after_fork(void);

/* Without the virtual ones while these are hidden. */
int pvn_devices_count(void);
/* NULL out of range. Virtual ones are hidden no longer once one of them is looked up. */
const struct pvn_device *pvn_device_get(int i);
/* No communicator is left. NCCL that unloads the plugin counts again, and takes all that it finds for physical
 * devices, also where the library has stayed mapped (2.29.7 to 2.30.7: src/plugin/plugin_open.cc forgets the
 * handle). NCCL that keeps the plugin goes on with the numbers it has, and so looks a virtual one up. */
void pvn_devices_hide_virtual(void);

/*
 * Joins n physical devices into a new one, or finds the one that was made of the same before. 0 and
 * *index, or a negative errno with *err. max: devices that the caller's version of the interface
 * can list. -EOPNOTSUPP with fault USAGE, which is no error of the caller: NCCL could not place the
 * joined device in its PCI tree, or NCCL_PVRDMA_VDEVICE forbids it; NCCL goes on with the members.
 */
int pvn_device_join(const int *devs, int n, int max, int *index, struct pvn_err *err);

/*
 * Devices of other interfaces than dev's, by which a peer can be reached when dev's is lost: those
 * that NCCL sees, and beside RDMA devices the interfaces that TCP can use. Up to max; returns their
 * number.
 */
int pvn_devices_beside(const struct pvn_device *dev, const struct pvn_device **out, int max);

/* True if a comm of this process may get lanes of another kind than TCP's. */
bool pvn_devices_have_adapters(void);

/* The devices that were looked at and not taken, for the banner; "" when nothing. */
const char *pvn_devices_left_out(void);

/* One line about a device for the log. Returns buf. */
const char *pvn_device_describe(const struct pvn_device *d, char *buf, size_t cap);

#endif
