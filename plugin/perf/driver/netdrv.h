/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives any NCCL net plugin through one interface, whatever version of NCCL's it exports: loads
 * the shared object, picks ncclNetPlugin_v4 to _v12 and translates calls shaped like the newest
 * version down to the one picked, as NCCL's own compatibility layers do (src/plugin/net/net_v6.cc
 * to net_v11.cc of NCCL 2.30.7).
 *
 * Calls return the plugin's ncclResult_t unchanged. If the version cannot express a call (a grouped
 * receive in v4, 3 GiB in v8), the driver returns ncclInvalidArgument or, for a missing function,
 * ncclInvalidUsage, without calling the plugin. Threads: calls on one comm come from one thread at
 * a time, as with NCCL. Comms share no state in the driver, except the list of v4's pending
 * connections, which is locked.
 */
#ifndef PVN_PERF_NETDRV_H
#define PVN_PERF_NETDRV_H

#include "nccl/net_v12.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_NETDRV_ABI_MIN 4
#define PVN_NETDRV_ABI_MAX 12

struct pvn_netdrv;

/*
 * Loads `what`: a path if it contains '/' or ends in ".so", else a name for which the loader
 * searches libnccl-net-<what>.so. `abi`: 4 to 12, or 0 for the newest exported version. Returns 0
 * and *drv (free with pvn_netdrv_close), or -ENOENT (not loadable), -EPROTO (no such symbol),
 * -ENOMEM, -EINVAL, with a sentence in msg.
 */
int pvn_netdrv_open(const char *what, int abi, struct pvn_netdrv **drv, char *msg, size_t msg_len);

/* Waits for v4 connections still pending in the plugin, then unloads it. NULL is allowed. */
void pvn_netdrv_close(struct pvn_netdrv *drv);

/* The version in use (4 to 12), and all exported versions as bits 1 << version. */
int pvn_netdrv_abi(const struct pvn_netdrv *drv);
unsigned pvn_netdrv_exported(const struct pvn_netdrv *drv);

/* The plugin's own name, and the file that was loaded. Valid until close. */
const char *pvn_netdrv_name(const struct pvn_netdrv *drv);
const char *pvn_netdrv_path(const struct pvn_netdrv *drv);

/* Limits of this version of the interface, whatever the plugin offers: requests in flight on a
 * comm, buffers in a grouped receive, bytes of a message, and bytes of a handle. */
int pvn_netdrv_max_requests(const struct pvn_netdrv *drv);
int pvn_netdrv_max_group(const struct pvn_netdrv *drv);
size_t pvn_netdrv_max_bytes(const struct pvn_netdrv *drv);
size_t pvn_netdrv_handle_size(const struct pvn_netdrv *drv);

/* "ncclSystemError" and so on; static storage. */
const char *pvn_netdrv_strerror(ncclResult_t rc);

/*
 * init and finalize are called once per communicator. Below v11 only the first of the communicators
 * that exist at a time initialises the plugin, and *ctx holds the data for v10's connect. finalize
 * calls the plugin only in v11 and v12.
 */
ncclResult_t pvn_netdrv_init(struct pvn_netdrv *drv, void **ctx, uint64_t comm_id,
                             const ncclNetCommConfig_v12_t *config, ncclDebugLogger_t log,
                             ncclProfilerCallback_t prof);
ncclResult_t pvn_netdrv_finalize(struct pvn_netdrv *drv, void *ctx);

ncclResult_t pvn_netdrv_devices(struct pvn_netdrv *drv, int *ndev);
/* Properties that the version lacks get the values NCCL assumes for it. */
ncclResult_t pvn_netdrv_properties(struct pvn_netdrv *drv, int dev, ncclNetProperties_v12_t *props);

/* `handle`: NCCL_NET_HANDLE_MAXSIZE bytes, zeroed by the caller before listen. */
ncclResult_t pvn_netdrv_listen(struct pvn_netdrv *drv, void *ctx, int dev, void *handle,
                               void **listen_comm);
/*
 * Call connect and accept again, with the same handle (the same bytes at the same address), while
 * they return ncclSuccess and NULL. They never block: calls of v4, which may block, run in threads.
 */
ncclResult_t pvn_netdrv_connect(struct pvn_netdrv *drv, void *ctx, int dev, void *handle,
                                void **send_comm);
ncclResult_t pvn_netdrv_accept(struct pvn_netdrv *drv, void *listen_comm, void **recv_comm);

ncclResult_t pvn_netdrv_reg_mr(struct pvn_netdrv *drv, void *comm, void *data, size_t size,
                               int type, void **mhandle);
ncclResult_t pvn_netdrv_reg_dmabuf(struct pvn_netdrv *drv, void *comm, void *data, size_t size,
                                   int type, uint64_t offset, int fd, void **mhandle);
ncclResult_t pvn_netdrv_dereg_mr(struct pvn_netdrv *drv, void *comm, void *mhandle);

/* On entry to irecv *request is NULL or NCCL_NET_OPTIONAL_RECV_COMPLETION. phandle and phandles may
 * be NULL. */
ncclResult_t pvn_netdrv_isend(struct pvn_netdrv *drv, void *comm, void *data, size_t size, int tag,
                              void *mhandle, void *phandle, void **request);
ncclResult_t pvn_netdrv_irecv(struct pvn_netdrv *drv, void *comm, int n, void **data, size_t *sizes,
                              int *tags, void **mhandles, void **phandles, void **request);
ncclResult_t pvn_netdrv_iflush(struct pvn_netdrv *drv, void *comm, int n, void **data, int *sizes,
                               void **mhandles, void **request);
/* `sizes` has an int for each buffer of the request, or is NULL. */
ncclResult_t pvn_netdrv_test(struct pvn_netdrv *drv, void *request, int *done, int *sizes);

ncclResult_t pvn_netdrv_close_send(struct pvn_netdrv *drv, void *comm);
ncclResult_t pvn_netdrv_close_recv(struct pvn_netdrv *drv, void *comm);
ncclResult_t pvn_netdrv_close_listen(struct pvn_netdrv *drv, void *comm);

ncclResult_t pvn_netdrv_make_vdevice(struct pvn_netdrv *drv, int *dev,
                                     const ncclNetVDeviceProps_v12_t *props);
ncclResult_t pvn_netdrv_set_attr(struct pvn_netdrv *drv, void *ctx, const ncclNetAttr_v12_t *attr);

#ifdef __cplusplus
}
#endif

#endif
