// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* A double of libnvidia-ml.so.1, with the functions that NCCL needs to start. It has no NVLink
 * and no fabric. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct nvmlDevice_st *nvmlDevice_t;

static unsigned count(void)
{
    const char *v = getenv("CUDART_DOUBLE_DEVICES");
    return v && *v ? (unsigned)strtoul(v, NULL, 0) : 1;
}
static void bus_id(unsigned device, char *out, size_t len)
{
    const char *first = getenv("CUDART_DOUBLE_BUSID");
    unsigned domain = 0, bus = 0x1b, dev = 0, fn = 0;
    if (first && *first)
        sscanf(first, "%x:%x:%x.%x", &domain, &bus, &dev, &fn);
    snprintf(out, len, "%04x:%02x:%02x.%x", domain, bus + device, dev, fn);
}

int nvmlInit(void)
{
    return 0;
}
int nvmlInit_v2(void)
{
    return 0;
}
int nvmlShutdown(void)
{
    return 0;
}
int nvmlDeviceGetCount(unsigned *n)
{
    *n = count();
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = count();
    return 0;
}
int nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice_t *d)
{
    *d = (nvmlDevice_t)(size_t)(i + 1);
    return i < count() ? 0 : 2;
}
int nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *d)
{
    for (unsigned i = 0; i < count(); i++) {
        char t[32];
        bus_id(i, t, sizeof t);
        if (strcasecmp(t, id) == 0)
            return nvmlDeviceGetHandleByIndex(i, d);
    }
    return 6;
}
int nvmlDeviceGetIndex(nvmlDevice_t d, unsigned *i)
{
    *i = (unsigned)(size_t)d - 1;
    return 0;
}
const char *nvmlErrorString(int r)
{
    return r ? "an error of the NVML double" : "success";
}
int nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor)
{
    (void)d;
    *major = 9;
    *minor = 0;
    return 0;
}
int nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, int index, int *status)
{
    (void)a;
    (void)b;
    (void)index;
    *status = 0; /* the "devices" of one process share its address space */
    return 0;
}

/* The first fields of nvmlPciInfo_t are equal in all its versions. Only these are written. */
struct pci_info {
    char bus_id[16];
    unsigned domain, bus, device, pci_device_id, pci_sub_system_id;
};

int nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, struct pci_info *p)
{
    char t[32];
    bus_id((unsigned)(size_t)d - 1, t, sizeof t);
    memset(p, 0, sizeof *p);
    memcpy(p->bus_id, t, sizeof p->bus_id - 1);
    sscanf(t, "%x:%x:%x", &p->domain, &p->bus, &p->device);
    p->pci_device_id = 0x233010de;
    p->pci_sub_system_id = 0x16c110de;
    return 0;
}
int nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t d, unsigned *gen)
{
    (void)d;
    *gen = 4;
    return 0;
}
int nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t d, unsigned *width)
{
    (void)d;
    *width = 16;
    return 0;
}
int nvmlDeviceGetPcieLinkMaxSpeed(nvmlDevice_t d, int *speed)
{
    (void)d;
    *speed = 16000;
    return 0;
}
int nvmlDeviceGetPciInfoExt(nvmlDevice_t d, void *p)
{
    (void)d;
    (void)p;
    return 3; /* NVML_ERROR_NOT_SUPPORTED */
}
