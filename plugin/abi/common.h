/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that the adapters of several versions of the interface share. A function has the name of the oldest version
 * whose parameters it has. So a new version of the interface needs a table and only the functions that have changed.
 *
 * The adapters only convert arguments and results. comm/comm.h has what the calls do.
 */
#ifndef PVN_ABI_COMMON_H
#define PVN_ABI_COMMON_H

#include "connect/transport.h"
#include "nccl/types.h"

/* init of all versions. ctx is NULL for versions without contexts, profiler is NULL below v10. */
ncclResult_t abi_init(int abi, void **ctx, int traffic_class, ncclDebugLogger_t logger,
                      ncclProfilerCallback_t profiler);
ncclResult_t abi_devices(int *ndev);
/* The device with this number. On failure logs the error and returns NULL; *rc is then the call's result. */
const struct pvn_device *abi_device(int dev, ncclResult_t *rc);
/* d->ptr_support for versions up to 8, which cannot request flushes (forceFlush). Their NCCL flushes memory of GPUs of compute
 * capability 9.0 and later only with NCCL_NET_FORCE_FLUSH (needFlush in src/transport/net.cc of 2.15 to 2.23), so without
 * that it gets no GPU memory that needs it. */
int abi_ptr_support_unforced(const struct pvn_device *d);
/* The PCI path; NULL for a device without a PCI function, as NCCL expects. */
char *abi_pci_path(const struct pvn_device *d);
/* Largest message since v9. */
#define ABI_MAX_BYTES ((size_t)NCCL_MAX_NET_SIZE_BYTES / 2)
ncclResult_t abi_make_vdevice(int *d, const int *devs, int ndevs, int max);

/* v4: connect and accept block only until the peer is known; set-up continues in later calls. One buffer per receive,
 * no tags. */
ncclResult_t listen_v4(int dev, void *handle, void **listenComm);
ncclResult_t connect_v4(int dev, void *handle, void **sendComm);
ncclResult_t accept_v4(void *listenComm, void **recvComm);
ncclResult_t regMr_v4(void *comm, void *data, int size, int type, void **mhandle);
ncclResult_t deregMr_v4(void *comm, void *mhandle);
ncclResult_t isend_v4(void *sendComm, void *data, int size, void *mhandle, void **request);
ncclResult_t irecv_v4(void *recvComm, void *data, int size, void *mhandle, void **request);
ncclResult_t iflush_v4(void *recvComm, void *data, int size, void *mhandle, void **request);
ncclResult_t test_v4(void *request, int *done, int *sizes);
ncclResult_t closeSend_v4(void *sendComm);
ncclResult_t closeRecv_v4(void *recvComm);
ncclResult_t closeListen_v4(void *listenComm);

/* v5: no call blocks; grouped receives with tags. */
ncclResult_t listen_v5(int dev, void *handle, void **listenComm);
ncclResult_t connect_v5(int dev, void *handle, void **sendComm);
ncclResult_t accept_v5(void *listenComm, void **recvComm);
ncclResult_t isend_v5(void *sendComm, void *data, int size, int tag, void *mhandle, void **request);
ncclResult_t irecv_v5(void *recvComm, int n, void **data, int *sizes, int *tags, void **mhandles,
                      void **request);
ncclResult_t iflush_v5(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                       void **request);

/* v6: dma-buf. */
ncclResult_t regMrDmaBuf_v6(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                            void **mhandle);

/* v7: device handles, which the plugin does not have. */
ncclResult_t connect_v7(int dev, void *handle, void **sendComm,
                        ncclNetDeviceHandle_v7_t **sendDevComm);
ncclResult_t accept_v7(void *listenComm, void **recvComm, ncclNetDeviceHandle_v7_t **recvDevComm);

/* v8: size_t in regMr. */
ncclResult_t regMr_v8(void *comm, void *data, size_t size, int type, void **mhandle);

/* v9: size_t in isend and irecv. */
ncclResult_t isend_v9(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                      void **request);
ncclResult_t irecv_v9(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                      void **request);

/* v10: profiler handles, traffic class at connect. */
ncclResult_t abi_connect_class(int dev, int traffic_class, void *handle, void **sendComm,
                               ncclNetDeviceHandle_v7_t **sendDevComm);
ncclResult_t isend_v10(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                       void *phandle, void **request);
ncclResult_t irecv_v10(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                       void **mhandles, void **phandles, void **request);

/* v11: contexts. */
ncclResult_t listen_v11(void *ctx, int dev, void *handle, void **listenComm);
ncclResult_t connect_v11(void *ctx, int dev, void *handle, void **sendComm,
                         ncclNetDeviceHandle_v7_t **sendDevComm);
ncclResult_t finalize_v11(void *ctx);

#endif
