/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices that NCCL sees: physical ones first, in an order that is the same in every process of
 * a machine, then the virtual ones that NCCL had made of them.
 *
 * A device keeps its number until pvn_devices_unload, which is called when the library is unmapped
 * and no comm is left. If NCCL 2.28 or later keeps the plugin (NCCL_NET_PLUGIN_REF_COUNT), it
 * remembers how many devices there are, virtual ones too, over a finalize and the next init. Any
 * thread.
 */
#ifndef PVN_COMM_DEVICE_H
#define PVN_COMM_DEVICE_H

#include "connect/transport.h"

/*
 * Scans with the transports. 0, even if there is no device. Negative errno with *err for lack of
 * memory, for a wrong NCCL_PVRDMA_RAILS or, with NCCL_PVRDMA_STRICT, if a scan failed or found
 * nothing usable. A second call changes nothing.
 */
int pvn_devices_load(struct pvn_err *err);
void pvn_devices_unload(void);
/* In a forked child: forgets the parent's devices, and destroys nothing of them. */
void pvn_devices_after_fork(void);

/* Returns the number of devices, without the virtual ones while these are hidden. */
int pvn_devices_count(void);
/* NULL if i is out of range. If a virtual device is looked up, the virtual ones are hidden no
 * longer. */
const struct pvn_device *pvn_device_get(int i);
/* Hides the virtual devices, because no communicator is left. If NCCL unloads the plugin, it counts
 * the devices again, and takes all that it finds for physical ones, even if the library has stayed
 * mapped (2.29.7 to 2.30.7: src/plugin/plugin_open.cc forgets the handle). If NCCL keeps the
 * plugin, it goes on with the numbers that it has, and so looks a virtual one up. */
void pvn_devices_hide_virtual(void);

/*
 * Joins n physical devices into a virtual one, or finds the one that was made of the same devices
 * before. 0 with *index, or a negative errno with *err. max: devices that the caller's version of
 * the interface can list.
 *
 * -EOPNOTSUPP with fault USAGE is no error of the caller: NCCL could not place the joined device in
 * its PCI tree, or NCCL_PVRDMA_VDEVICE forbids it. NCCL goes on with the members.
 */
int pvn_device_join(const int *devs, int n, int max, int *index, struct pvn_err *err);

/*
 * Finds devices on other interfaces than dev's, by which a peer can be reached if dev's is lost:
 * devices that NCCL sees and, beside RDMA devices, interfaces that TCP can use. Writes up to max
 * and returns their number.
 */
int pvn_devices_beside(const struct pvn_device *dev, const struct pvn_device **out, int max);

/* True if a comm of this process may get lanes of another kind than TCP's. */
bool pvn_devices_have_adapters(void);

/* The devices that the scan did not take, for the banner; "" if there are none. */
const char *pvn_devices_left_out(void);

/* One line about a device for the log. Returns buf. */
const char *pvn_device_describe(const struct pvn_device *d, char *buf, size_t cap);

#endif
