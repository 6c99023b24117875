#include "config.h"
#include "core/layout.h"

#include <stdlib.h>
#include <strings.h>

#include "core/device.h"
#include "core/log.h"
#include "nccl/types.h"
#include "topo/report.h"

static const char *from_environment(const char *name, void *user)
{
    return getenv(name);
}

static void to_log(const char *text, void *user)
{
    pvn_info(PVN_INIT | PVN_NET | PVN_GRAPH, "%s", text);
}

/* NCCL filters what its logger gets, and does not tell by what; its variable does. */
static bool wanted(void)
{
    const char *debug = getenv("NCCL_DEBUG");

    return pvn_log_enabled(PVN_LOG_INFO) && debug &&
           (strcasecmp(debug, "INFO") == 0 || strcasecmp(debug, "TRACE") == 0);
}

void pvn_layout_log(void)
{
    struct pvn_report_device devices[PVN_MAX_DEVICES];
    int i, n = pvn_devices_count();

    if (!wanted())
        return;
    for (i = 0; i < n; i++) {
        const struct pvn_device *d = pvn_device_get(i);

        devices[i] = (struct pvn_report_device){
            .name = d->name,
            .pci_path = d->pci_path,
            .guid = d->guid,
            .port = d->port,
            .speed_mbps = d->speed_mbps,
            .rail = d->rail,
            .gpu_memory = (d->ptr_support & (NCCL_PTR_CUDA | NCCL_PTR_DMABUF)) != 0,
        };
    }
    pvn_topo_report("/", devices, n, from_environment, to_log, NULL);
}
