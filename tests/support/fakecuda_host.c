/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Host memory that an application registers with the GPU, or creates on a NUMA node
 * (tests/gpu/staging.c). */
#include "config.h"
#include "gpu/staging_api.h"
#include "support/fakecuda_priv.h"

#include <sys/mman.h>

EXPORT pvn_cu_result cuMemHostRegister_v2(void *mem, size_t len, unsigned flags);
EXPORT pvn_cu_result cuMemGetAllocationGranularity(size_t *out, const struct st_mem_prop *prop,
                                                   int option);
EXPORT pvn_cu_result cuMemCreate(st_mem_handle *out, size_t len, const struct st_mem_prop *prop,
                                 unsigned long long flags);
EXPORT pvn_cu_result cuMemAddressReserve(pvn_cu_ptr *out, size_t len, size_t align, pvn_cu_ptr at,
                                         unsigned long long flags);
EXPORT pvn_cu_result cuMemMap(pvn_cu_ptr at, size_t len, size_t offset, st_mem_handle handle,
                              unsigned long long flags);
EXPORT pvn_cu_result cuMemSetAccess(pvn_cu_ptr at, size_t len, const struct st_mem_access *access,
                                    size_t count);

static bool is_on_a_node(const struct st_mem_prop *prop)
{
    return prop->type == ST_MEM_PINNED && prop->location.type == ST_AT_HOST_NUMA;
}

pvn_cu_result cuMemHostRegister_v2(void *mem, size_t len, unsigned flags)
{
    int rc = fake_begin("cuMemHostRegister_v2", true);
    if (rc)
        return rc;
    return fake_end(mem && len && fake_top() ? PVN_CU_SUCCESS : PVN_CU_INVALID_VALUE);
}

pvn_cu_result cuMemGetAllocationGranularity(size_t *out, const struct st_mem_prop *prop, int option)
{
    int rc = fake_begin("cuMemGetAllocationGranularity", true);
    if (rc)
        return rc;
    *out = VMM_GRANULE;
    return fake_end(is_on_a_node(prop) ? PVN_CU_SUCCESS : PVN_CU_INVALID_VALUE);
}

/* A handle is just the length, because the mapping allocates the memory. */
pvn_cu_result cuMemCreate(st_mem_handle *out, size_t len, const struct st_mem_prop *prop,
                          unsigned long long flags)
{
    int rc = fake_begin("cuMemCreate", true);
    if (rc)
        return rc;
    if (!is_on_a_node(prop) || !len || len % VMM_GRANULE)
        return fake_end(PVN_CU_INVALID_VALUE);
    *out = len;
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuMemAddressReserve(pvn_cu_ptr *out, size_t len, size_t align, pvn_cu_ptr at,
                                  unsigned long long flags)
{
    int rc = fake_begin("cuMemAddressReserve", true);
    if (rc)
        return rc;
    void *p = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *out = p == MAP_FAILED ? 0 : (uintptr_t)p;
    return fake_end(*out ? PVN_CU_SUCCESS : PVN_CU_OUT_OF_MEMORY);
}

pvn_cu_result cuMemMap(pvn_cu_ptr at, size_t len, size_t offset, st_mem_handle handle,
                       unsigned long long flags)
{
    int rc = fake_begin("cuMemMap", true);
    if (rc)
        return rc;
    return fake_end(at && !offset && handle == len ? PVN_CU_SUCCESS : PVN_CU_INVALID_VALUE);
}

pvn_cu_result cuMemSetAccess(pvn_cu_ptr at, size_t len, const struct st_mem_access *access,
                             size_t count)
{
    bool for_host = false;
    int rc = fake_begin("cuMemSetAccess", true);
    if (rc)
        return rc;
    for (size_t i = 0; i < count; i++)
        for_host |=
            access[i].location.type == ST_AT_HOST_NUMA && access[i].flags == ST_ACCESS_READ_WRITE;
    if (!for_host || mprotect((void *)(uintptr_t)at, len, PROT_READ | PROT_WRITE))
        return fake_end(PVN_CU_INVALID_VALUE);
    return fake_end(PVN_CU_SUCCESS);
}
