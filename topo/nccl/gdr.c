/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/nccl/gdr.h"

#include <stdio.h>
#include <string.h>

const char *pvn_topo_gdr_result_name(enum pvn_topo_gdr_result result)
{
    static const char *const names[] = {"yes", "NO", "likely", "unknown"};
    return names[result];
}

struct judge {
    const struct pvn_topo_pairs *pairs;
    const struct pvn_topo_ntree *tree;
    const struct pvn_topo *topo;    /* NULL when only a file is known */
    const struct pvn_topo_nic *nic; /* NULL likewise */
    const struct pvn_topo_nnode *gpu_node, *net_node;
    int gpu, net;
    struct pvn_topo_gdr_step *step;
};

#define SAY(field, ...) snprintf(j->step->field, sizeof(j->step->field), __VA_ARGS__)

/* Kernel drivers whose rdma-core provider can register a dma-buf (rdma-core 2026: the operation
 * reg_dmabuf_mr), by the PCI function's driver or the RDMA device's own: irdma's functions are on
 * ice, idpf or i40e. The list does not include vmw_pvrdma. */
static bool dmabuf_driver(const char *driver)
{
    static const char *const drivers[] = {"mlx5_core", "mlx5_ib", "bnxt_re", "bnxt_en",
                                          "efa",       "ionic",   "irdma",   "ice",
                                          "idpf",      "i40e",    "mana_ib", "mana"};
    for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
        if (strcmp(driver, drivers[i]) == 0)
            return true;
    return false;
}

static void judge_pvrdma(struct judge *j)
{
    j->step->result = PVN_TOPO_GDR_NO;
    SAY(seen,
        "PVRDMA: its driver pins memory as ordinary user pages, and its library has no dma-buf "
        "registration");
    SAY(needed, "a device that can register GPU memory");
    SAY(remedy,
        "none in the guest: host memory only, whatever modules are loaded. For GPUDirect give "
        "the VM a passthrough or SR-IOV NIC beside the GPU");
}

/* Judges the NIC's driver and the kernel's modules of a real machine. */
static void judge_live(const struct pvn_topo *topo, const struct pvn_topo_nccl_env *env,
                       const struct pvn_topo_nic *nic, struct pvn_topo_gdr_step *step)
{
    const struct judge local = {.step = step}, *j = &local;
    const struct pvn_topo_nvidia *nv = &topo->nvidia;
    const char *driver = topo->rdmas[nic->rdma].driver;
    bool dmabuf = dmabuf_driver(driver) && nv->open_modules != PVN_TOPO_TRI_NO;
    SAY(needed,
        "nvidia_peermem, or dma-buf (open NVIDIA kernel modules and a NIC driver that has it)");
    if (nv->loaded == PVN_TOPO_TRI_NO) {
        j->step->result = PVN_TOPO_GDR_NO;
        SAY(seen, "the NVIDIA kernel driver is not loaded");
        SAY(remedy, "load it: modprobe nvidia");
    } else if (nv->peermem == PVN_TOPO_TRI_YES && nv->memory_peers != PVN_TOPO_TRI_NO) {
        j->step->result = PVN_TOPO_GDR_LIKELY;
        SAY(seen,
            "nvidia_peermem%s%.40s is loaded; only a registration proves that it works for %s",
            nv->peermem_version[0] ? " " : "", nv->peermem_version, nic->name);
    } else if (dmabuf && env->dmabuf) {
        j->step->result =
            nv->open_modules == PVN_TOPO_TRI_YES ? PVN_TOPO_GDR_LIKELY : PVN_TOPO_GDR_UNKNOWN;
        SAY(seen, "no nvidia_peermem; driver %s has dma-buf, NVIDIA modules are %s", driver,
            nv->open_modules == PVN_TOPO_TRI_YES ? "the open ones"
                                                 : "of a kind that could not be read");
        if (nv->open_modules != PVN_TOPO_TRI_YES)
            SAY(remedy, "modprobe nvidia_peermem, or the open kernel modules");
    } else if (nv->loaded == PVN_TOPO_TRI_UNKNOWN) {
        j->step->result = PVN_TOPO_GDR_UNKNOWN;
        SAY(seen, "no state of kernel modules in this description");
    } else {
        j->step->result = PVN_TOPO_GDR_NO;
        SAY(seen, "no nvidia_peermem; dma-buf: %s",
            !env->dmabuf                          ? "switched off by NCCL_DMABUF_ENABLE=0"
            : nv->open_modules == PVN_TOPO_TRI_NO ? "the NVIDIA modules are not the open ones"
                                                  : "the NIC's driver has none");
        SAY(remedy, "modprobe nvidia_peermem%s",
            !env->dmabuf ? ", or unset NCCL_DMABUF_ENABLE" : "");
    }
}

static void judge_nic(struct judge *j)
{
    j->step->title = "the NIC can reach GPU memory";
    if (j->nic && j->nic->pvrdma) {
        judge_pvrdma(j);
    } else if (j->nic && j->nic->rdma < 0) {
        j->step->result = PVN_TOPO_GDR_NO;
        SAY(seen, "%s is a network interface: TCP copies through host memory", j->nic->name);
        SAY(needed, "an RDMA device");
        SAY(remedy, "use an RDMA device if the machine has one");
    } else if (j->nic && j->topo && j->nic->gdr == 0 && j->net_node->net.gdr == 0) {
        judge_live(j->topo, &j->tree->env, j->nic, j->step);
    } else if (j->net_node->net.gdr == 0) {
        j->step->result = PVN_TOPO_GDR_NO;
        SAY(seen, "the topology says gdr=\"0\" for %s", j->net_node->net.name);
        SAY(needed, "gdr=\"1\": the plugin offers CUDA or dma-buf pointers");
        SAY(remedy, "load nvidia_peermem, or remove the attribute if it comes from a file");
    } else if (j->net_node->net.gdr == 1) {
        j->step->result = PVN_TOPO_GDR_YES;
        SAY(seen, "gdr=\"1\"");
    } else if (j->nic && j->topo) {
        judge_live(j->topo, &j->tree->env, j->nic, j->step);
    } else {
        j->step->result = PVN_TOPO_GDR_UNKNOWN;
        SAY(seen, "the file does not say (no gdr attribute)");
    }
}

static void judge_gpu(struct judge *j)
{
    int pci = j->topo ? pvn_topo_pairs_gpu_pci(j->pairs, j->gpu) : -1;
    int index = pci >= 0 ? pvn_topo_gpu_of_pci(j->topo, pci) : -1;
    const struct pvn_topo_gpu *gpu = index >= 0 ? &j->topo->gpus[index] : NULL;
    j->step->title = "the GPU can be reached";
    SAY(needed, "CUDA's attribute GPUDirectRDMASupported (a data-centre or RTX professional GPU)");
    if (j->gpu_node->gpu.gdr == 0) {
        j->step->result = PVN_TOPO_GDR_NO;
        SAY(seen, "the topology says gdr=\"0\" for the GPU");
    } else if (gpu && strstr(gpu->model, "GeForce")) {
        j->step->result = PVN_TOPO_GDR_NO;
        SAY(seen, "%.80s: GeForce GPUs do not support GPUDirect RDMA", gpu->model);
    } else if (gpu && gpu->kind != PVN_TOPO_GPU_NVIDIA) {
        j->step->result = PVN_TOPO_GDR_UNKNOWN;
        SAY(seen, "not an NVIDIA GPU: its own library decides");
    } else if (j->gpu_node->gpu.gdr == 1) {
        j->step->result = PVN_TOPO_GDR_YES;
        SAY(seen, "gdr=\"1\"");
    } else {
        j->step->result = gpu && gpu->model[0] ? PVN_TOPO_GDR_LIKELY : PVN_TOPO_GDR_UNKNOWN;
        SAY(seen, "%s; the attribute is only readable through CUDA",
            gpu && gpu->model[0] ? gpu->model : "model not known");
    }
}

static void judge_partition(struct judge *j)
{
    /* NCCL 2.30 writes this attribute for every GPU; -1 means a whole GPU (init.cc mloPart). */
    int part = j->gpu_node->gpu.mlopart;
    j->step->title = "the GPU is whole";
    j->step->result = PVN_TOPO_GDR_YES;
    SAY(seen, "no memory-locality partition");
    if (part == -1)
        return;
    SAY(seen, "mlopart=\"%d\"%s", part,
        j->tree->env.gdr_mlopart ? "; NCCL_NET_GDR_MLOPART allows it" : "");
    SAY(needed, "no memory-locality partition, or NCCL_NET_GDR_MLOPART=1");
    if (!j->tree->env.gdr_mlopart) {
        j->step->result = PVN_TOPO_GDR_NO;
        SAY(remedy, "NCCL_NET_GDR_MLOPART=1");
    }
}

static void judge_send(struct judge *j)
{
    const struct pvn_topo_ntree *t = j->tree;
    bool nvlink = false;
    int sm = j->gpu_node->gpu.sm;
    for (int p = 0; p < t->n_gpus; p++)
        nvlink |= p != j->gpu && pvn_topo_ntree_gpu_gpu(t, j->gpu, p)->type == PVN_TOPO_NPATH_NVL;
    j->step->title = "sending may read GPU memory";
    j->step->result = PVN_TOPO_GDR_YES;
    SAY(needed,
        "Ampere or later, or NVLink to another GPU, or a single GPU, or NCCL_NET_GDR_READ=1");
    if (t->env.gdr_read == 0) {
        j->step->result = PVN_TOPO_GDR_NO;
        SAY(seen, "NCCL_NET_GDR_READ=0: receiving only");
        SAY(remedy, "unset NCCL_NET_GDR_READ");
    } else if (t->env.gdr_read == 1) {
        SAY(seen, "NCCL_NET_GDR_READ=1");
    } else if (sm >= 80 || nvlink || t->n_gpus == 1) {
        SAY(seen, "%s",
            sm >= 80 ? "compute capability 8.0 or later"
            : nvlink ? "NVLink"
                     : "a single GPU");
    } else if (sm == 0) {
        j->step->result = PVN_TOPO_GDR_UNKNOWN;
        SAY(seen, "compute capability not known");
    } else {
        j->step->result = PVN_TOPO_GDR_NO;
        SAY(seen, "compute capability %d.%d, several GPUs, no NVLink: receiving only", sm / 10,
            sm % 10);
        SAY(remedy, "NCCL_NET_GDR_READ=1 (costs PCIe bandwidth between the GPUs)");
    }
}

/* True if the CPU may be Grace, NVIDIA's own CPU, whose NVLink-C2C to the GPU only NVML reports. */
static bool may_have_c2c(const struct judge *j)
{
    int pci = j->topo ? pvn_topo_pairs_gpu_pci(j->pairs, j->gpu) : -1;
    if (pci < 0 || j->topo->cpu.arch != PVN_TOPO_ARCH_ARM64 || !j->tree->env.gdr_c2c)
        return false;
    while (j->topo->pci[pci].parent >= 0)
        pci = j->topo->pci[pci].parent;
    return j->topo->pci[pci].vendor == 0x10de;
}

static void judge_distance(struct judge *j)
{
    const struct pvn_topo_nccl_env *env = &j->tree->env;
    const struct pvn_topo_nroute *route = pvn_topo_ntree_route(j->tree, j->gpu, j->net);
    int relay = route->type == PVN_TOPO_NPATH_PXN ? route->via_gpu : j->gpu;
    enum pvn_topo_npath type = pvn_topo_ntree_gpu_net(j->tree, relay, j->net)->type;
    bool hidden = pvn_topo_pairs_hidden(j->pairs, j->gpu, j->net);
    int limit = env->gdr_level >= 0 ? env->gdr_level
                : env->gdr_c2c      ? PVN_TOPO_NPATH_P2C
                                    : PVN_TOPO_NPATH_PXB;

    /* If GPUDirect was refused, a detour has replaced the type by PHB. The level is measured on the
     * type before the detour, except that C2C turns PHB into P2C. */
    if (relay == j->gpu && !route->detour && route->type < type)
        type = route->type;
    j->step->title = "they are near enough";
    j->step->result = (int)type <= limit ? PVN_TOPO_GDR_YES : PVN_TOPO_GDR_NO;
    SAY(needed, "%s or nearer%s", pvn_topo_npath_name((enum pvn_topo_npath)limit),
        env->gdr_level >= 0 ? " (NCCL_NET_GDR_LEVEL)" : " (NCCL's default)");
    if (relay != j->gpu)
        SAY(seen, "PXN through GPU%d, which is at %s", j->tree->nodes[j->tree->gpus[relay]].gpu.dev,
            pvn_topo_npath_name(type));
    else
        SAY(seen, "%s: %s%s", pvn_topo_npath_name(type), pvn_topo_npath_words(type),
            hidden ? " as far as the hypervisor shows" : "");
    if (j->step->result == PVN_TOPO_GDR_YES)
        return;
    if (type == PVN_TOPO_NPATH_PHB && limit >= PVN_TOPO_NPATH_P2C && may_have_c2c(j)) {
        j->step->result = PVN_TOPO_GDR_UNKNOWN;
        SAY(seen,
            "PHB by PCIe; NVLink-C2C from GPU to CPU, which sysfs does not show, makes it P2C");
        return;
    }
    /* A device that cannot register GPU memory cannot reach it at any distance. */
    if (j->nic && j->nic->pvrdma)
        return;
    if (hidden)
        SAY(remedy,
            "if the host has both under one switch or root complex: describe that with pvn-topo "
            "merge and NCCL_TOPO_FILE, or NCCL_NET_GDR_LEVEL=%s; the host must allow "
            "peer-to-peer%s",
            pvn_topo_npath_name(type),
            j->topo->guest.hypervisor == PVN_TOPO_HV_VMWARE
                ? " (pciPassthru.allowP2P, RelaxACSforP2P)"
                : "");
    else if (type < PVN_TOPO_NPATH_NET)
        SAY(remedy,
            "move one of the cards below the other's switch, or NCCL_NET_GDR_LEVEL=%s (measure: "
            "data then crosses %s)",
            pvn_topo_npath_name(type), pvn_topo_npath_words(type));
}

static void judge_mode(struct judge *j, struct pvn_topo_gdr *out)
{
    int cpu = pvn_topo_ntree_gpu_local_cpu(j->tree, j->gpu);
    const struct pvn_topo_nroute *route = pvn_topo_ntree_route(j->tree, j->gpu, j->net);
    j->step->title = "mapping";
    j->step->result = PVN_TOPO_GDR_YES;
    out->pci_mode = cpu >= 0 &&
                    pvn_topo_ntree_gpu_cpu(j->tree, j->gpu, cpu)->type == PVN_TOPO_NPATH_C2C &&
                    route->type != PVN_TOPO_NPATH_P2C;
    SAY(seen, "%s",
        out->pci_mode ? "NVLink-C2C system, but the path is PCIe: the PCIe mapping is forced"
                      : "default");
}

static void sum_up(struct judge *j, struct pvn_topo_gdr *out)
{
    bool unknown = false, likely = false;
    const char *unsure = "";
    out->first_no = -1;
    for (int i = 0; i < PVN_TOPO_GDR_CONDITIONS; i++) {
        const struct pvn_topo_gdr_step *step = &out->steps[i];
        /* A refused read affects only sending; receiving still works, so it does not decide. */
        if (step->result == PVN_TOPO_GDR_NO && out->first_no < 0 && i != PVN_TOPO_GDR_SEND)
            out->first_no = i;
        if (step->result == PVN_TOPO_GDR_UNKNOWN && !unknown)
            unsure = step->title;
        unknown |= step->result == PVN_TOPO_GDR_UNKNOWN;
        likely |= step->result == PVN_TOPO_GDR_LIKELY;
    }
    const char *half =
        out->steps[PVN_TOPO_GDR_SEND].result == PVN_TOPO_GDR_NO ? ", for receiving only" : "";
    if (out->first_no >= 0) {
        const struct pvn_topo_gdr_step *step = &out->steps[out->first_no];
        snprintf(out->verdict, sizeof(out->verdict), "no: %s%s%s", step->seen,
                 step->needed[0] ? "; needs " : "", step->needed);
    } else if (unknown) {
        snprintf(out->verdict, sizeof(out->verdict), "possible%s; not known: whether %s", half,
                 unsure);
    } else {
        snprintf(out->verdict, sizeof(out->verdict), "%s%s", likely ? "likely" : "yes", half);
    }
}

void pvn_topo_gdr_judge(const struct pvn_topo_pairs *pairs, int gpu, int net,
                        struct pvn_topo_gdr *out)
{
    const struct pvn_topo_ntree *t = pairs->tree;
    struct judge j = {.pairs = pairs, .tree = t, .topo = pairs->topo, .gpu = gpu, .net = net};
    j.gpu_node = &t->nodes[t->gpus[gpu]];
    j.net_node = &t->nodes[t->nets[net]];
    j.nic = pvn_topo_pairs_nic(pairs, net);
    memset(out, 0, sizeof(*out));
    static void (*const conditions[])(struct judge *) = {
        [PVN_TOPO_GDR_NIC] = judge_nic,
        [PVN_TOPO_GDR_GPU] = judge_gpu,
        [PVN_TOPO_GDR_PARTITION] = judge_partition,
        [PVN_TOPO_GDR_SEND] = judge_send,
        [PVN_TOPO_GDR_DISTANCE] = judge_distance,
    };
    for (int i = 0; i < PVN_TOPO_GDR_MODE; i++) {
        j.step = &out->steps[i];
        conditions[i](&j);
    }
    j.step = &out->steps[PVN_TOPO_GDR_MODE];
    judge_mode(&j, out);
    sum_up(&j, out);
}

void pvn_topo_gdr_find(const struct pvn_topo *topo, const struct pvn_topo_nccl_env *env,
                       struct pvn_topo_nics *nics)
{
    bool nvidia = false;
    for (int i = 0; i < topo->ngpus; i++)
        nvidia |= topo->gpus[i].kind == PVN_TOPO_GPU_NVIDIA;
    for (int i = 0; i < nics->n; i++) {
        struct pvn_topo_nic *nic = &nics->list[i];
        struct pvn_topo_gdr_step step = {.result = PVN_TOPO_GDR_UNKNOWN};
        if (nic->rdma < 0)
            step.result = PVN_TOPO_GDR_NO;
        else if (nvidia && !nic->pvrdma)
            judge_live(topo, env, nic, &step);
        if (step.result == PVN_TOPO_GDR_NO)
            nic->gdr = 0;
    }
}
