/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "abi/common.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "comm/comm.h"
#include "comm/profile.h"
#include "comm/device.h"
#include "base/log.h"
#include "comm/plugin.h"
#include "base/result.h"
#include "connect/wire.h"

_Static_assert((int)PVN_HANDLE_BYTES <= NCCL_NET_HANDLE_MAXSIZE_V4,
               "the handle of the oldest version");
_Static_assert((int)ncclSuccess == PVN_RESULT_SUCCESS &&
                   (int)ncclUnhandledCudaError == PVN_RESULT_CUDA_ERROR &&
                   (int)ncclSystemError == PVN_RESULT_SYSTEM_ERROR &&
                   (int)ncclInternalError == PVN_RESULT_INTERNAL_ERROR &&
                   (int)ncclInvalidArgument == PVN_RESULT_INVALID_ARGUMENT &&
                   (int)ncclInvalidUsage == PVN_RESULT_INVALID_USAGE &&
                   (int)ncclRemoteError == PVN_RESULT_REMOTE_ERROR,
               "enum pvn_result is ncclResult_t");

__attribute__((noinline, cold)) static ncclResult_t result(int rc, const struct pvn_err *err)
{
    return (ncclResult_t)pvn_result_of(rc, err);
}

/* Refuses a call whose arguments are wrong in any state. */
__attribute__((noinline, cold)) static ncclResult_t wrong(const char *call, const char *what)
{
    struct pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -EINVAL, "%s: %s", call, what);
    pvn_err_set_fault(&err, PVN_FAULT_ARGUMENT);
    pvn_warn_err(&err);
    return ncclInvalidArgument;
}

ncclResult_t abi_init(int abi, void **out, int traffic_class, ncclDebugLogger_t logger,
                      ncclProfilerCallback_t profiler)
{
    struct pvn_init_args args = {
        .abi = abi,
        .traffic_class = traffic_class >= 0 && traffic_class <= 255 ? traffic_class : -1,
        .logger = (pvn_logger_fn)logger};
    struct pvn_err err = PVN_ERR_INIT;
    int rc = pvn_plugin_init(&args, (struct pvn_ctx **)out, &err);

    if (rc) {
        pvn_warn_err(&err);
        return result(rc, &err);
    }
    pvn_profile_set_callback(profiler);
    if (traffic_class > 255 || traffic_class < NCCL_NET_TRAFFIC_CLASS_UNDEF)
        pvn_warn("traffic class %d of this communicator is not between 0 and 255 and is ignored",
                 traffic_class);
    return ncclSuccess;
}

ncclResult_t abi_devices(int *ndev)
{
    struct pvn_err err = PVN_ERR_INIT;
    int rc = pvn_plugin_ready(&err);

    *ndev = 0;
    if (rc) {
        pvn_warn_err(&err);
        return result(rc, &err);
    }
    *ndev = pvn_devices_count();
    return ncclSuccess;
}

const struct pvn_device *abi_device(int dev, ncclResult_t *rc)
{
    struct pvn_err err = PVN_ERR_INIT;
    const struct pvn_device *d = NULL;
    int code = pvn_plugin_ready(&err);

    if (code == 0) {
        d = pvn_device_get(dev);
        if (!d) {
            code = pvn_err_set(&err, -EINVAL, "getProperties: no device %d, there are %d", dev,
                               pvn_devices_count());
            pvn_err_set_fault(&err, PVN_FAULT_ARGUMENT);
        }
    }
    if (!d)
        pvn_warn_err(&err);
    *rc = result(code, &err);
    return d;
}

int abi_ptr_support_unforced(const struct pvn_device *d)
{
    const char *forced = getenv("NCCL_NET_FORCE_FLUSH");

    if (!d->force_flush || (forced && atoi(forced) != 0))
        return d->ptr_support;
    pvn_warn(
        "device %s: GPU memory is staged through host memory: what arrives there needs a flush, "
        "which this NCCL requests on such a GPU only with NCCL_NET_FORCE_FLUSH=1",
        d->name);
    return NCCL_PTR_HOST;
}

char *abi_pci_path(const struct pvn_device *d)
{
    return d->pci_path[0] ? (char *)d->pci_path : NULL;
}

ncclResult_t abi_make_vdevice(int *d, const int *devs, int ndevs, int max)
{
    struct pvn_err err = PVN_ERR_INIT;
    char text[512];
    int rc = pvn_plugin_ready(&err);

    if (rc == 0)
        rc = pvn_device_join(devs, ndevs, max, d, &err);
    if (rc == -EOPNOTSUPP) {
        /* No warning, because NCCL tries combinations and accepts a refusal. */
        pvn_err_format(&err, text, sizeof(text));
        pvn_info(PVN_INIT | PVN_NET, "%s", text);
        return result(rc, &err);
    }
    if (rc) {
        pvn_warn_err(&err);
        return result(rc, &err);
    }
    pvn_info(PVN_INIT | PVN_NET, "device %d: %s", *d,
             pvn_device_describe(pvn_device_get(*d), text, sizeof(text)));
    return ncclSuccess;
}

/* ---- connecting ---- */

static ncclResult_t do_listen(const struct pvn_comm_cfg *cfg, void *handle, void **listenComm)
{
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_listen *l;
    int rc;

    *listenComm = NULL;
    if (!handle)
        return wrong("listen", "no handle");
    rc = pvn_comm_listen(cfg, handle, &l, &err);
    *listenComm = l;
    return result(rc, &err);
}

static ncclResult_t do_connect(const struct pvn_comm_cfg *cfg, void *handle, void **sendComm)
{
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_comm *c;
    int rc;

    *sendComm = NULL;
    if (!handle)
        return wrong("connect", "no handle");
    rc = pvn_comm_connect(cfg, handle, &c, &err);
    *sendComm = c;
    return result(rc, &err);
}

ncclResult_t accept_v5(void *listenComm, void **recvComm)
{
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_comm *c;
    int rc = pvn_comm_accept(listenComm, &c, &err);

    *recvComm = c;
    return result(rc, &err);
}

/* Pauses between two attempts of a blocking call. The first pauses are short, because the peer is usually there. */
static void pause_a_little(unsigned *turn)
{
    unsigned us = 10u << (*turn < 6 ? *turn : 6);
    struct timespec ts = {.tv_nsec = us * 1000L};

    (*turn)++;
    nanosleep(&ts, NULL);
}

ncclResult_t listen_v4(int dev, void *handle, void **listenComm)
{
    struct pvn_comm_cfg cfg = {.dev = dev, .traffic_class = -1, .lazy = true};

    return do_listen(&cfg, handle, listenComm);
}

ncclResult_t connect_v4(int dev, void *handle, void **sendComm)
{
    struct pvn_comm_cfg cfg = {.dev = dev, .traffic_class = -1, .lazy = true};
    unsigned turn = 0;
    ncclResult_t rc;

    while ((rc = do_connect(&cfg, handle, sendComm)) == ncclSuccess && !*sendComm)
        pause_a_little(&turn);
    return rc;
}

ncclResult_t accept_v4(void *listenComm, void **recvComm)
{
    unsigned turn = 0;
    ncclResult_t rc;

    while ((rc = accept_v5(listenComm, recvComm)) == ncclSuccess && !*recvComm)
        pause_a_little(&turn);
    return rc;
}

ncclResult_t listen_v5(int dev, void *handle, void **listenComm)
{
    struct pvn_comm_cfg cfg = {.dev = dev, .traffic_class = -1};

    return do_listen(&cfg, handle, listenComm);
}

ncclResult_t connect_v5(int dev, void *handle, void **sendComm)
{
    struct pvn_comm_cfg cfg = {.dev = dev, .traffic_class = -1};

    return do_connect(&cfg, handle, sendComm);
}

ncclResult_t connect_v7(int dev, void *handle, void **sendComm,
                        ncclNetDeviceHandle_v7_t **sendDevComm)
{
    return abi_connect_class(dev, -1, handle, sendComm, sendDevComm);
}

ncclResult_t accept_v7(void *listenComm, void **recvComm, ncclNetDeviceHandle_v7_t **recvDevComm)
{
    if (recvDevComm)
        *recvDevComm = NULL;
    return accept_v5(listenComm, recvComm);
}

ncclResult_t abi_connect_class(int dev, int traffic_class, void *handle, void **sendComm,
                               ncclNetDeviceHandle_v7_t **sendDevComm)
{
    struct pvn_comm_cfg cfg = {.dev = dev, .traffic_class = traffic_class};

    if (sendDevComm)
        *sendDevComm = NULL;
    return do_connect(&cfg, handle, sendComm);
}

ncclResult_t listen_v11(void *ctx, int dev, void *handle, void **listenComm)
{
    struct pvn_comm_cfg cfg = {
        .dev = dev, .owner = ctx, .traffic_class = pvn_ctx_traffic_class(ctx)};

    return do_listen(&cfg, handle, listenComm);
}

ncclResult_t connect_v11(void *ctx, int dev, void *handle, void **sendComm,
                         ncclNetDeviceHandle_v7_t **sendDevComm)
{
    struct pvn_comm_cfg cfg = {
        .dev = dev, .owner = ctx, .traffic_class = pvn_ctx_traffic_class(ctx)};

    if (sendDevComm)
        *sendDevComm = NULL;
    return do_connect(&cfg, handle, sendComm);
}

ncclResult_t finalize_v11(void *ctx)
{
    struct pvn_err err = PVN_ERR_INIT;
    int rc = pvn_plugin_finalize(ctx, &err);

    if (rc)
        pvn_warn_err(&err);
    return result(rc, &err);
}

/* NULL is allowed, because NCCL closes comms that were never created. */
ncclResult_t closeSend_v4(void *sendComm)
{
    return !sendComm || pvn_comm_close(sendComm) == 0 ? ncclSuccess
                                                      : wrong("closeSend", "not a comm");
}

ncclResult_t closeRecv_v4(void *recvComm)
{
    return !recvComm || pvn_comm_close(recvComm) == 0 ? ncclSuccess
                                                      : wrong("closeRecv", "not a comm");
}

ncclResult_t closeListen_v4(void *listenComm)
{
    return !listenComm || pvn_comm_close_listen(listenComm) == 0
               ? ncclSuccess
               : wrong("closeListen", "not a listener");
}

/* ---- memory ---- */

ncclResult_t regMrDmaBuf_v6(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                            void **mhandle)
{
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_comm_mr *mr;
    int rc;

    *mhandle = NULL;
    if (!comm)
        return wrong("regMr", "no comm");
    rc = pvn_comm_reg(comm, data, size, type, fd, offset, &mr, &err);
    *mhandle = mr;
    return rc ? result(rc, &err) : ncclSuccess;
}

ncclResult_t regMr_v8(void *comm, void *data, size_t size, int type, void **mhandle)
{
    return regMrDmaBuf_v6(comm, data, size, type, 0, -1, mhandle);
}

ncclResult_t regMr_v4(void *comm, void *data, int size, int type, void **mhandle)
{
    if (size < 0)
        return wrong("regMr", "negative size");
    return regMr_v8(comm, data, (size_t)size, type, mhandle);
}

ncclResult_t deregMr_v4(void *comm, void *mhandle)
{
    struct pvn_err err = PVN_ERR_INIT;
    int rc;

    if (!comm)
        return wrong("deregMr", "no comm");
    rc = pvn_comm_dereg(comm, mhandle, &err);
    return rc ? result(rc, &err) : ncclSuccess;
}

/* ---- data ---- */

/* A function of its own, because the other versions call it and a copy in each of them would only be more code. */
__attribute__((noinline)) ncclResult_t isend_v10(void *sendComm, void *data, size_t size, int tag,
                                                 void *mhandle, void *phandle, void **request)
{
    if (__builtin_expect(!sendComm, 0))
        return wrong("isend", "no comm");
    return (ncclResult_t)pvn_comm_isend(sendComm, data, size, tag, mhandle, phandle, request);
}

ncclResult_t isend_v9(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                      void **request)
{
    return isend_v10(sendComm, data, size, tag, mhandle, NULL, request);
}

ncclResult_t isend_v5(void *sendComm, void *data, int size, int tag, void *mhandle, void **request)
{
    if (size < 0)
        return wrong("isend", "negative size");
    return isend_v9(sendComm, data, (size_t)size, tag, mhandle, request);
}

ncclResult_t isend_v4(void *sendComm, void *data, int size, void *mhandle, void **request)
{
    return isend_v5(sendComm, data, size, 0, mhandle, request);
}

/* Since v9 *request may be NCCL_NET_OPTIONAL_RECV_COMPLETION on entry. NCCL then polls flags inside the data, and the
 * request may complete at any time. The plugin treats such a receive like any other. With sockets an earlier completion
 * would save nothing, and NCCL's own transports do not complete it earlier either. */
__attribute__((noinline)) ncclResult_t irecv_v10(void *recvComm, int n, void **data, size_t *sizes,
                                                 int *tags, void **mhandles, void **phandles,
                                                 void **request)
{
    if (__builtin_expect(!recvComm, 0))
        return wrong("irecv", "no comm");
    return (ncclResult_t)pvn_comm_irecv(recvComm, n, data, sizes, tags, mhandles, phandles,
                                        request);
}

ncclResult_t irecv_v9(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                      void **request)
{
    return irecv_v10(recvComm, n, data, sizes, tags, mhandles, NULL, request);
}

/* Converts the sizes of n buffers to size_t. False for a wrong count or a negative size. */
static bool widen(int n, const int *sizes, size_t *out)
{
    int i;

    if (n < 1 || n > PVN_MAX_RECVS)
        return false;
    for (i = 0; i < n; i++) {
        if (sizes[i] < 0)
            return false;
        out[i] = (size_t)sizes[i];
    }
    return true;
}

ncclResult_t irecv_v5(void *recvComm, int n, void **data, int *sizes, int *tags, void **mhandles,
                      void **request)
{
    size_t wide[PVN_MAX_RECVS];

    if (!widen(n, sizes, wide))
        return wrong("irecv", "not 1 to 8 buffers of sizes from 0");
    return irecv_v9(recvComm, n, data, wide, tags, mhandles, request);
}

ncclResult_t irecv_v4(void *recvComm, void *data, int size, void *mhandle, void **request)
{
    int tag = 0;

    return irecv_v5(recvComm, 1, &data, &size, &tag, &mhandle, request);
}

ncclResult_t iflush_v5(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                       void **request)
{
    size_t wide[PVN_MAX_RECVS];
    int rc;

    *request = NULL;
    if (!recvComm || !widen(n, sizes, wide))
        return wrong("iflush", "no comm, or not 1 to 8 buffers of sizes from 0");
    rc = pvn_comm_iflush(recvComm, n, data, wide, mhandles, request);
    return rc ? result(rc, pvn_comm_err(recvComm)) : ncclSuccess;
}

ncclResult_t iflush_v4(void *recvComm, void *data, int size, void *mhandle, void **request)
{
    return iflush_v5(recvComm, 1, &data, &size, &mhandle, request);
}

ncclResult_t test_v4(void *request, int *done, int *sizes)
{
    if (__builtin_expect(!request, 0)) {
        *done = 0;
        return wrong("test", "no request");
    }
    return (ncclResult_t)pvn_comm_test(request, done, sizes);
}
