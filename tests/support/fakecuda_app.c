/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Copies, streams and pinned memory, for applications and for the plugin. Each call completes
 * its work before it returns. */
#include "config.h"
#include "gpu/staging_api.h"
#include "support/fakecuda_priv.h"

#include <stdlib.h>
#include <string.h>

EXPORT pvn_cu_result cuDevicePrimaryCtxSetFlags_v2(pvn_cu_device dev, unsigned flags);
EXPORT pvn_cu_result cuCtxSetCurrent(pvn_cu_context ctx);
EXPORT pvn_cu_result cuMemAllocHost_v2(void **out, size_t len);
EXPORT pvn_cu_result cuMemHostAlloc(void **out, size_t len, unsigned flags);
EXPORT pvn_cu_result cuMemFreeHost(void *mem);
EXPORT pvn_cu_result cuMemcpyHtoD_v2(pvn_cu_ptr to, const void *from, size_t len);
EXPORT pvn_cu_result cuMemcpyDtoH_v2(void *to, pvn_cu_ptr from, size_t len);
EXPORT pvn_cu_result cuMemsetD8_v2(pvn_cu_ptr to, unsigned char byte, size_t len);
EXPORT pvn_cu_result cuCtxSynchronize(void);
EXPORT pvn_cu_result cuStreamQuery(void *stream);

/* True if [addr, addr + len) lies in one allocation. On a real GPU, a copy would fault
 * otherwise. */
static bool is_device(uint64_t addr, size_t len)
{
    const struct block *b = fake_find_block(addr);
    return b && (b->kind == BLOCK_DEVICE || b->kind == BLOCK_SEGMENT) &&
           addr + len <= b->base + b->len;
}

pvn_cu_result cuDevicePrimaryCtxSetFlags_v2(pvn_cu_device dev, unsigned flags)
{
    return dev >= 0 && dev < fake.ndevs ? PVN_CU_SUCCESS : PVN_CU_INVALID_DEVICE;
}

pvn_cu_result cuCtxSetCurrent(pvn_cu_context ctx)
{
    fake_depth = ctx ? 1 : 0;
    fake_stack[0] = ctx;
    return PVN_CU_SUCCESS;
}

pvn_cu_result cuMemAllocHost_v2(void **out, size_t len)
{
    *out = malloc(len);
    return *out ? PVN_CU_SUCCESS : PVN_CU_OUT_OF_MEMORY;
}

pvn_cu_result cuMemHostAlloc(void **out, size_t len, unsigned flags)
{
    int rc = fake_begin("cuMemHostAlloc", true);
    if (rc)
        return rc;
    if (!fake_top())
        return fake_end(PVN_CU_INVALID_CONTEXT);
    *out = flags == PVN_CU_HOST_PORTABLE || flags == ST_HOST_MAPPED ? malloc(len) : NULL;
    return fake_end(*out ? PVN_CU_SUCCESS : PVN_CU_OUT_OF_MEMORY);
}

pvn_cu_result cuMemFreeHost(void *mem)
{
    int rc = fake_begin("cuMemFreeHost", true);
    if (rc)
        return rc;
    if (!fake_top())
        return fake_end(PVN_CU_INVALID_CONTEXT);
    free(mem);
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuMemcpyHtoD_v2(pvn_cu_ptr to, const void *from, size_t len)
{
    int rc = fake_begin("cuMemcpyHtoD_v2", true);
    if (rc)
        return rc;
    if (!is_device(to, len))
        return fake_end(PVN_CU_INVALID_VALUE);
    memcpy(fake_memory(to), from, len);
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuMemcpyDtoH_v2(void *to, pvn_cu_ptr from, size_t len)
{
    int rc = fake_begin("cuMemcpyDtoH_v2", true);
    if (rc)
        return rc;
    if (!is_device(from, len))
        return fake_end(PVN_CU_INVALID_VALUE);
    memcpy(to, fake_memory(from), len);
    return fake_end(PVN_CU_SUCCESS);
}

/* The callers pass only streams that exist, because a real driver may crash on others. */
pvn_cu_result cuMemcpyHtoDAsync_v2(pvn_cu_ptr to, const void *from, size_t len, void *stream)
{
    int rc = fake_begin("cuMemcpyHtoDAsync_v2", true);
    if (rc)
        return rc;
    if (!fake_top() || !stream || !is_device(to, len))
        return fake_end(PVN_CU_INVALID_VALUE);
    memcpy(fake_memory(to), from, len);
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuMemcpyDtoHAsync_v2(void *to, pvn_cu_ptr from, size_t len, void *stream)
{
    int rc = fake_begin("cuMemcpyDtoHAsync_v2", true);
    if (rc)
        return rc;
    if (!fake_top() || !stream || !is_device(from, len))
        return fake_end(PVN_CU_INVALID_VALUE);
    memcpy(to, fake_memory(from), len);
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuStreamDestroy_v2(void *stream)
{
    int rc = fake_begin("cuStreamDestroy_v2", true);
    if (rc)
        return rc;
    return fake_end(stream ? PVN_CU_SUCCESS : PVN_CU_INVALID_VALUE);
}

pvn_cu_result cuMemsetD8_v2(pvn_cu_ptr to, unsigned char byte, size_t len)
{
    if (!is_device(to, len))
        return PVN_CU_INVALID_VALUE;
    memset(fake_memory(to), byte, len);
    return PVN_CU_SUCCESS;
}

pvn_cu_result cuCtxSynchronize(void)
{
    return PVN_CU_SUCCESS;
}

pvn_cu_result cuStreamCreate(void **out, unsigned flags)
{
    static char stream;
    int rc = fake_begin("cuStreamCreate", true);
    if (rc)
        return rc;
    *out = &stream;
    return fake_end(fake_top() ? PVN_CU_SUCCESS : PVN_CU_INVALID_CONTEXT);
}

pvn_cu_result cuStreamQuery(void *stream)
{
    int rc = fake_begin("cuStreamQuery", true);
    return rc ? rc : fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuStreamSynchronize(void *stream)
{
    int rc = fake_begin("cuStreamSynchronize", true);
    return rc ? rc : fake_end(PVN_CU_SUCCESS);
}
