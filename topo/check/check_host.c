/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Checks on the machine: guest, NUMA, locked memory, NVIDIA's driver, access to GPU memory. */
#include "topo/check/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The end of a path, which is its informative part. */
static const char *tail(const char *where, char *out, size_t cap)
{
    size_t n = strlen(where);

    if (n < cap)
        return where;
    snprintf(out, cap, "...%s", where + n - (cap - 4));
    return out;
}

void pvn_topo_check_read(struct pvn_topo_check_run *run)
{
    const struct pvn_topo *t = run->t;
    const char *remedy = t->unread != 0 && t->live
                             ? "run it as root; in a container mount the machine's own /sys and "
                               "/proc (mount -t sysfs sysfs /sys)"
                             : "";
    char subject[64];

    for (int i = 0; i < t->nnotes; i++) {
        pvn_topo_check_row(run, "read", PVN_TOPO_LEVEL_UNKNOWN,
                           tail(t->notes[i].where, subject, sizeof(subject)), remedy, "%s",
                           t->notes[i].text);
    }
    if (t->notes_dropped > 0) {
        pvn_topo_check_row(run, "read", PVN_TOPO_LEVEL_UNKNOWN, "machine", remedy,
                           "%d more could not be read as they should be", t->notes_dropped);
    }
}

void pvn_topo_check_guest(struct pvn_topo_check_run *run)
{
    const struct pvn_topo *t = run->t;

    if (!pvn_topo_is_guest(t)) {
        pvn_topo_check_row(
            run, "guest",
            t->guest.hypervisor == PVN_TOPO_HV_NONE ? PVN_TOPO_LEVEL_OK : PVN_TOPO_LEVEL_UNKNOWN,
            "machine", "", "%s",
            t->guest.hypervisor == PVN_TOPO_HV_NONE ? "bare metal: the PCI tree is the real one"
                                                    : "it cannot be determined whether this is a "
                                                      "guest");
    } else if (t->merged != 0) {
        pvn_topo_check_row(
            run, "guest",
            (t->merged & PVN_TOPO_MERGED_ORDER) != 0 ? PVN_TOPO_LEVEL_WARN : PVN_TOPO_LEVEL_OK,
            "machine",
            (t->merged & PVN_TOPO_MERGED_ORDER) != 0
                ? "name the pairs in a hints file: device ADDRESS host ADDRESS"
                : "",
            "guest of %s; the layout comes from %s%s",
            pvn_topo_hypervisor_name(t->guest.hypervisor),
            (t->merged & PVN_TOPO_MERGED_HOST) != 0 ? "the host's dump" : "a hints file",
            (t->merged & PVN_TOPO_MERGED_ORDER) != 0 ? ", with devices matched by order alone"
                                                     : "");
    } else if (t->ngpus == 0) {
        pvn_topo_check_row(run, "guest", PVN_TOPO_LEVEL_OK, "machine", "",
                           "guest of %s (%s); there is no GPU whose place would matter",
                           pvn_topo_hypervisor_name(t->guest.hypervisor), t->guest.evidence);
    } else if (!pvn_topo_layout_hidden(t)) {
        pvn_topo_check_row(run, "guest", PVN_TOPO_LEVEL_OK, "machine", "",
                           "guest of %s (%s), which shows GPUs and NICs below switches; whether "
                           "the hardware is wired like that only the host knows",
                           pvn_topo_hypervisor_name(t->guest.hypervisor), t->guest.evidence);
    } else {
        pvn_topo_check_row(
            run, "guest", PVN_TOPO_LEVEL_WARN, "machine",
            "give the layout in a hints file, or merge the host's dump (pvn-topo merge)",
            "guest of %s (%s): the real PCI layout is hidden, so distances are unknown and NCCL "
            "guesses",
            pvn_topo_hypervisor_name(t->guest.hypervisor), t->guest.evidence);
    }
}

static bool is_end(const struct pvn_topo *t, int i)
{
    return pvn_topo_gpu_of_pci(t, i) >= 0 || pvn_topo_rdma_of_pci(t, i) >= 0;
}

/* True if some devices have a node and others have -1. NCCL takes these for two CPUs. */
static bool nodes_are_mixed(const struct pvn_topo *t)
{
    bool known = false, none = false;

    for (int i = 0; i < t->npci; i++) {
        if (is_end(t, i) && t->pci[i].physfn < 0 && t->pci[i].numa != PVN_TOPO_UNKNOWN) {
            known |= t->pci[i].numa >= 0;
            none |= t->pci[i].numa < 0;
        }
    }
    return known && none;
}

void pvn_topo_check_numa(struct pvn_topo_check_run *run)
{
    const struct pvn_topo *t = run->t;
    bool mixed = nodes_are_mixed(t);

    for (int i = 0; i < t->npci; i++) {
        const struct pvn_topo_pci *p = &t->pci[i];
        char where[48] = "while others have a node";

        if (!is_end(t, i) || p->physfn >= 0)
            continue;
        if (t->nnumas > 1)
            snprintf(where, sizeof(where), "on a machine of %d nodes", t->nnumas);
        if (p->numa == PVN_TOPO_UNKNOWN) {
            pvn_topo_check_row(run, "numa", PVN_TOPO_LEVEL_UNKNOWN, p->bdf, "",
                               "its NUMA node is not shown%s%s%s",
                               p->numa_text[0] != '\0' ? " (numa_node \"" : "", p->numa_text,
                               p->numa_text[0] != '\0' ? "\")" : "");
        } else if (p->numa < 0 && (t->nnumas > 1 || mixed)) {
            pvn_topo_check_row(
                run, "numa", PVN_TOPO_LEVEL_WARN, p->bdf,
                pvn_topo_is_guest(t)
                    ? "on vSphere 8 assign the device to a vNUMA node (VM options, CPU "
                      "topology); on KVM use a pxb-pcie with numa_node"
                    : "update the BIOS: its tables do not say where the slot is",
                "numa_node is -1 %s: NCCL binds nothing and makes a CPU of its own for it", where);
        } else if ((t->unread & PVN_TOPO_UNREAD_NUMAS) != 0 &&
                   (p->numa < 0 || pvn_topo_find_numa(t, p->numa) < 0)) {
            pvn_topo_check_row(run, "numa", PVN_TOPO_LEVEL_UNKNOWN, p->bdf, "",
                               "numa_node is %d, but the machine's nodes could not be read",
                               p->numa);
        } else if (p->numa >= 0 && t->nnumas > 0 && pvn_topo_find_numa(t, p->numa) < 0) {
            pvn_topo_check_row(run, "numa", PVN_TOPO_LEVEL_WARN, p->bdf, "update the BIOS",
                               "numa_node is %d, but the machine has no such node", p->numa);
        } else if (!mixed) {
            pvn_topo_check_row(run, "numa", PVN_TOPO_LEVEL_OK, p->bdf, "",
                               p->numa < 0 ? "the machine has one NUMA node" : "NUMA node %d",
                               p->numa);
        }
    }
}

static bool is_down(const struct pvn_topo *t, int pci)
{
    int rdma = pvn_topo_rdma_of_pci(t, pci), net = pvn_topo_net_of_pci(t, pci);

    if (rdma >= 0 && t->rdmas[rdma].nports > 0) {
        for (int p = 0; p < t->rdmas[rdma].nports; p++)
            if (t->rdmas[rdma].ports[p].state == 4)
                return false;
        return true;
    }
    return net >= 0 && (t->nets[net].carrier == 0 || strcmp(t->nets[net].operstate, "down") == 0);
}

/* A NIC on this node that is only down; NULL if there is none. */
static const char *down_on_node(const struct pvn_topo *t, int node)
{
    for (int i = 0; i < t->nrdmas; i++)
        if (t->rdmas[i].pci >= 0 && t->pci[t->rdmas[i].pci].numa == node &&
            is_down(t, t->rdmas[i].pci))
            return t->rdmas[i].name;
    for (int i = 0; i < t->nnets; i++)
        if (t->nets[i].pci >= 0 && t->pci[t->nets[i].pci].numa == node &&
            is_down(t, t->nets[i].pci))
            return t->nets[i].name;
    return NULL;
}

void pvn_topo_check_numa_pair(struct pvn_topo_check_run *run,
                              const struct pvn_topo_check_pair *pair)
{
    const struct pvn_topo_pci *gpu = &run->t->pci[pair->gpu], *nic = &run->t->pci[pair->nic];
    char subject[64];

    pvn_topo_check_pair_name(run->t, pair, subject, sizeof(subject));
    if (gpu->numa == PVN_TOPO_UNKNOWN || nic->numa == PVN_TOPO_UNKNOWN || gpu->numa == nic->numa)
        return; /* the rows of the devices cover it */
    if (gpu->numa < 0 || nic->numa < 0) {
        pvn_topo_check_row(
            run, "numa", PVN_TOPO_LEVEL_WARN, subject,
            "give both a node (see above), or both in a file for NCCL_TOPO_FILE",
            "numa_node \"%s\" and \"%s\": NCCL takes them for devices of two CPUs and counts a hop "
            "between sockets that may not exist",
            gpu->numa_text, nic->numa_text);
    } else {
        const char *down = down_on_node(run->t, gpu->numa);
        char remedy[200] = "move a card so that each socket has a NIC";

        if (down) {
            snprintf(remedy, sizeof(remedy), "bring up %s, which is on the GPU's node and down",
                     down);
        }
        pvn_topo_check_row(run, "numa", PVN_TOPO_LEVEL_WARN, subject, remedy,
                           "the nearest NIC %sis on NUMA node %d, the GPU on node %d",
                           down ? "that is up " : "", nic->numa, gpu->numa);
    }
}

void pvn_topo_check_memlock(struct pvn_topo_check_run *run)
{
    const struct pvn_topo *t = run->t;
    static const char remedy[] = "ulimit -l unlimited: in limits.conf 'memlock unlimited', in a "
                                 "unit LimitMEMLOCK=infinity, for containers --ulimit memlock=-1";

    if (!t->memlock_known) {
        pvn_topo_check_row(run, "memlock", PVN_TOPO_LEVEL_UNKNOWN, "process", "",
                           "its limits are not shown");
    } else if (t->memlock_soft == UINT64_MAX) {
        pvn_topo_check_row(run, "memlock", PVN_TOPO_LEVEL_OK, "process", "",
                           "locked memory is not limited");
    } else if (t->nrdmas == 0 && (t->unread & PVN_TOPO_UNREAD_RDMAS) != 0) {
        pvn_topo_check_row(run, "memlock", PVN_TOPO_LEVEL_UNKNOWN, "process", "",
                           "limited to %" PRIu64
                           " KiB, which matters for RDMA; if there is some is not known",
                           t->memlock_soft / 1024);
    } else if (t->nrdmas == 0) {
        pvn_topo_check_row(run, "memlock", PVN_TOPO_LEVEL_OK, "process", "",
                           "limited to %" PRIu64 " KiB, which matters only for RDMA",
                           t->memlock_soft / 1024);
    } else {
        char hard[40] = "unlimited";

        if (t->memlock_hard != UINT64_MAX)
            snprintf(hard, sizeof(hard), "%" PRIu64 " KiB", t->memlock_hard / 1024);
        pvn_topo_check_row(
            run, "memlock",
            t->memlock_soft < UINT64_C(1) << 30 ? PVN_TOPO_LEVEL_FAIL : PVN_TOPO_LEVEL_WARN,
            "process", remedy,
            "locked memory is limited to %" PRIu64
            " KiB (hard limit %s): registering buffers fails beyond that, unless the "
            "process has CAP_IPC_LOCK",
            t->memlock_soft / 1024, hard);
    }
}

/* Files of a comm: a control connection, a data stream, and a connection that replaces them in a
 * failover. */
#define FILES_PER_COMM 3
/* Files of Python, CUDA and the data loader; a guess that is large enough. */
#define FILES_OF_OTHERS 256

void pvn_topo_check_files(struct pvn_topo_check_run *run)
{
    const struct pvn_topo *t = run->t;
    static const char remedy[] = "ulimit -n 65536: in limits.conf 'nofile 65536', in a unit "
                                 "LimitNOFILE=65536, for containers --ulimit nofile=65536:65536";
    uint64_t comms;

    if (!t->files_known) {
        pvn_topo_check_row(run, "open-files", PVN_TOPO_LEVEL_UNKNOWN, "process", "",
                           "its limits are not shown");
        return;
    }
    comms =
        t->files_soft > FILES_OF_OTHERS ? (t->files_soft - FILES_OF_OTHERS) / FILES_PER_COMM : 0;
    if (t->files_soft == UINT64_MAX) {
        pvn_topo_check_row(run, "open-files", PVN_TOPO_LEVEL_OK, "process", "",
                           "open files are not limited");
    } else if (t->files_soft >= 1024) {
        pvn_topo_check_row(run, "open-files", PVN_TOPO_LEVEL_OK, "process", "",
                           "%" PRIu64 " open files, for some %" PRIu64 " connections of a rank",
                           t->files_soft, comms);
    } else if (comms == 0) {
        pvn_topo_check_row(run, "open-files", PVN_TOPO_LEVEL_WARN, "process", remedy,
                           "%" PRIu64 " open files are too few for a training process",
                           t->files_soft);
    } else {
        pvn_topo_check_row(run, "open-files", PVN_TOPO_LEVEL_WARN, "process", remedy,
                           "%" PRIu64 " open files are enough for some %" PRIu64
                           " connections of a rank only",
                           t->files_soft, comms);
    }
}

static bool has_nvidia_gpu(const struct pvn_topo *t)
{
    for (int i = 0; i < t->ngpus; i++)
        if (t->gpus[i].kind == PVN_TOPO_GPU_NVIDIA)
            return true;
    return false;
}

void pvn_topo_check_nvidia(struct pvn_topo_check_run *run)
{
    const struct pvn_topo_nvidia *nv = &run->t->nvidia;

    if (!has_nvidia_gpu(run->t))
        return;
    if (nv->loaded == PVN_TOPO_TRI_YES) {
        pvn_topo_check_row(run, "nvidia-driver", PVN_TOPO_LEVEL_OK, "nvidia", "",
                           "loaded, version %s%s", nv->version[0] != '\0' ? nv->version : "unknown",
                           nv->open_modules == PVN_TOPO_TRI_YES ? ", open kernel modules" : "");
    } else if (nv->loaded == PVN_TOPO_TRI_NO) {
        pvn_topo_check_row(run, "nvidia-driver", PVN_TOPO_LEVEL_FAIL, "nvidia",
                           "modprobe nvidia, and read dmesg",
                           "there are NVIDIA GPUs, but the kernel driver is not loaded");
    } else {
        pvn_topo_check_row(run, "nvidia-driver", PVN_TOPO_LEVEL_UNKNOWN, "nvidia", "",
                           "neither modules nor /proc/driver/nvidia can be seen");
    }
}

/* Providers of rdma-core with a reg_dmabuf_mr operation (rdma-core 2026, below providers/). */
static bool driver_has_dmabuf(const char *driver)
{
    static const char *const drivers[] = {"mlx5_core", "mlx5_ib", "bnxt_en", "bnxt_re", "efa",
                                          "ionic",     "ice",     "irdma",   "mana"};

    for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
        if (strcmp(driver, drivers[i]) == 0)
            return true;
    return false;
}

/* dma-buf for RDMA came with Linux 5.12. */
static enum pvn_topo_tri kernel_has_dmabuf(const struct pvn_topo *t)
{
    int major, minor;

    if (sscanf(t->kernel, "%5d.%5d", &major, &minor) != 2)
        return PVN_TOPO_TRI_UNKNOWN;
    return major > 5 || (major == 5 && minor >= 12) ? PVN_TOPO_TRI_YES : PVN_TOPO_TRI_NO;
}

static void gpudirect_row(struct pvn_topo_check_run *run, const struct pvn_topo_rdma *dev)
{
    const struct pvn_topo *t = run->t;
    const struct pvn_topo_nvidia *nv = &t->nvidia;
    bool dmabuf_nic = driver_has_dmabuf(dev->driver);
    enum pvn_topo_tri kernel = kernel_has_dmabuf(t);

    if (dev->kind == PVN_TOPO_RDMA_PVRDMA) {
        pvn_topo_check_row(
            run, "gpudirect", PVN_TOPO_LEVEL_WARN, dev->name,
            "for GPU memory in a guest pass a real NIC through (DirectPath I/O or SR-IOV)",
            "host memory only: vmw_pvrdma has no dma-buf registration and does not reach "
            "nvidia_peermem, so data is copied through host memory");
    } else if (dev->kind == PVN_TOPO_RDMA_SOFT) {
        pvn_topo_check_row(run, "gpudirect", PVN_TOPO_LEVEL_OK, dev->name, "",
                           "host memory only: a software device cannot reach GPU memory");
    } else if (dmabuf_nic && nv->open_modules == PVN_TOPO_TRI_YES && kernel == PVN_TOPO_TRI_YES) {
        pvn_topo_check_row(
            run, "gpudirect", PVN_TOPO_LEVEL_OK, dev->name, "",
            "dma-buf should work (open kernel modules, Linux %s); only a registration proves it",
            t->kernel);
    } else if (nv->peermem == PVN_TOPO_TRI_YES || nv->memory_peers == PVN_TOPO_TRI_YES) {
        pvn_topo_check_row(
            run, "gpudirect", PVN_TOPO_LEVEL_OK, dev->name, "",
            "nvidia_peermem%s%s is loaded; only a registration proves that %s uses it",
            nv->peermem_version[0] != '\0' ? " " : "", nv->peermem_version, dev->driver);
    } else if (nv->loaded != PVN_TOPO_TRI_YES || nv->peermem == PVN_TOPO_TRI_UNKNOWN ||
               (dmabuf_nic && kernel == PVN_TOPO_TRI_UNKNOWN)) {
        pvn_topo_check_row(run, "gpudirect", PVN_TOPO_LEVEL_UNKNOWN, dev->name, "",
                           "the state of the NVIDIA driver or of the kernel is not known");
    } else {
        pvn_topo_check_row(
            run, "gpudirect", PVN_TOPO_LEVEL_WARN, dev->name,
            dmabuf_nic && kernel == PVN_TOPO_TRI_YES
                ? "install the open kernel modules of the NVIDIA driver (dma-buf), or modprobe "
                  "nvidia_peermem"
                : "modprobe nvidia_peermem (it needs the RDMA stack of MLNX_OFED or DOCA)",
            "GPU memory cannot be reached: nvidia_peermem is not loaded, and dma-buf needs %s",
            !dmabuf_nic                 ? "another NIC driver"
            : kernel == PVN_TOPO_TRI_NO ? "Linux 5.12 or later"
                                        : "the open kernel modules");
    }
}

void pvn_topo_check_gpudirect(struct pvn_topo_check_run *run)
{
    for (int i = 0; has_nvidia_gpu(run->t) && i < run->t->nrdmas; i++)
        gpudirect_row(run, &run->t->rdmas[i]);
}
