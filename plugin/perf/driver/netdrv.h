/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives any NCCL net plugin through one interface, whatever version of NCCL's it exports: loads
 * the shared object, picks ncclNetPlugin_v4 to _v12 and translates calls shaped like the newest
 * version down to the one picked, as NCCL's own compatibility layers do (src/plugin/net/net_v6.cc
 * to net_v11.cc of NCCL 2.30.7).
 *
 * Calls return the plugin's ncclResult_t unchanged. What the version cannot express (a grouped
 * receive in v4, 3 GiB in v8) gives ncclInvalidArgument or, for a whole missing function,
 * ncclInvalidUsage, without the plugin being called. Threads: calls on one comm from one thread at
 * a time, as with NCCL; the driver itself has no state that two comms share, except the list of
 * v4's pending connections, which is locked.
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
 * Loads `what`: a path if it contains '/' or ends in ".so", else a name that the loader looks for
 * as libnccl-net-<what>.so. `abi`: 4 to 12, or 0 for the newest exported. 0 and *drv (free with
 * pvn_netdrv_close), or -ENOENT (not loadable), -EPROTO (no such symbol), -ENOMEM, -EINVAL, with a
 * sentence in msg.
 */
int pvn_netdrv_open(const char *what, int abi, struct pvn_netdrv **drv, char *msg, size_t msg_len);

/* Waits for v4 connections still pending in the plugin, then unloads it. NULL is allowed. */
void pvn_netdrv_close(struct pvn_netdrv *drv);

/* The version in use, 4 to 12; all that are exported, as bits 1 << version. */
int pvn_netdrv_abi(const struct pvn_netdrv *drv);
unsigned pvn_netdrv_exported(const struct pvn_netdrv *drv);

/* The plugin's own name; the file that was loaded. Valid until close. */
const char *pvn_netdrv_name(const struct pvn_netdrv *drv);
const char *pvn_netdrv_path(const struct pvn_netdrv *drv);

/* Requests a comm may have in flight, buffers in a grouped receive at most, largest message in
 * bytes and bytes of a handle: what this version of the interface allows, whatever the plugin
 * offers. */
int pvn_netdrv_max_requests(const struct pvn_netdrv *drv);
int pvn_netdrv_max_group(const struct pvn_netdrv *drv);
size_t pvn_netdrv_max_bytes(const struct pvn_netdrv *drv);
size_t pvn_netdrv_handle_size(const struct pvn_netdrv *drv);

/* "ncclSystemError" and so on; static storage. */
const char *pvn_netdrv_strerror(ncclResult_t rc);

/*
 * One init per communicator. Below v11 the plugin is initialised by the first of those that exist
 * at a time; *ctx then carries what v10's connect needs. finalize calls the plugin in v11 and v12
 * only.
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
 * Call again with the same handle (the same bytes at the same address) while they give ncclSuccess
 * and NULL. v4's may block, so for v4 they run in a thread of their own and never block here
 * either.
 */
ncclResult_t pvn_netdrv_connect(struct pvn_netdrv *drv, void *ctx, int dev, void *handle,
                                void **send_comm);
ncclResult_t pvn_netdrv_accept(struct pvn_netdrv *drv, void *listen_comm, void **recv_comm);

ncclResult_t pvn_netdrv_reg_mr(struct pvn_netdrv *drv, void *comm, void *data, size_t size,
                               int type, void **mhandle);
ncclResult_t pvn_netdrv_reg_dmabuf(struct pvn_netdrv *drv, void *comm, void *data, size_t size,
                                   int type, uint64_t offset, int fd, void **mhandle);
ncclResult_t pvn_netdrv_dereg_mr(struct pvn_netdrv *drv, void *comm, void *mhandle);

/* *request on entry to irecv may be NCCL_NET_OPTIONAL_RECV_COMPLETION, else it must be NULL.
 * phandle and phandles may be NULL. */
ncclResult_t pvn_netdrv_isend(struct pvn_netdrv *drv, void *comm, void *data, size_t size, int tag,
                              void *mhandle, void *phandle, void **request);
ncclResult_t pvn_netdrv_irecv(struct pvn_netdrv *drv, void *comm, int n, void **data, size_t *sizes,
                              int *tags, void **mhandles, void **phandles, void **request);
ncclResult_t pvn_netdrv_iflush(struct pvn_netdrv *drv, void *comm, int n, void **data, int *sizes,
                               void **mhandles, void **request);
/* `sizes` has room for as many ints as the request has buffers, or is NULL. */
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
