/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The machine apart from its devices: CPUs, NUMA nodes, IOMMU, DMI, kernel, modules, limits. */
#include "topo/reader.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char node_dir[] = "/sys/devices/system/node";

enum {
    CPUINFO_MAX = 64 << 20,
    MAP_MAX = 65536, /* cpumap of far more CPUs than any kernel supports */
};

/* Value of "KEY<blanks>:<blank>VALUE" when the line has that key, else NULL. */
static const char *line_value(const char *line, const char *key)
{
    size_t n = strlen(key);

    if (strncmp(line, key, n) != 0)
        return NULL;
    line += n;
    while (*line == ' ' || *line == '\t')
        line++;
    if (*line != ':')
        return NULL;
    line++;
    return *line == ' ' ? line + 1 : line;
}

static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = strstr(text, word); at; at = strstr(at + n, word))
        if ((at == text || isspace((unsigned char)at[-1])) &&
            (at[n] == '\0' || isspace((unsigned char)at[n])))
            return true;
    return false;
}

struct cpuinfo {
    struct pvn_topo *t;
    unsigned char seen[8192 / 8]; /* physical ids */
};

static void cpuinfo_identity(struct pvn_topo_cpu *cpu, const char *line)
{
    const char *v;

    if ((v = line_value(line, "vendor_id")) && cpu->vendor[0] == '\0') {
        pvn_topo_copy_text(cpu->vendor, sizeof(cpu->vendor), v);
        cpu->arch = strncmp(v, "IBM/S390", 8) == 0 ? PVN_TOPO_ARCH_OTHER : PVN_TOPO_ARCH_X86_64;
    } else if ((v = line_value(line, "CPU implementer")) && cpu->vendor[0] == '\0') {
        pvn_topo_copy_text(cpu->vendor, sizeof(cpu->vendor), "ARM");
        cpu->arch = PVN_TOPO_ARCH_ARM64;
    } else if ((v = line_value(line, "cpu")) && strncmp(v, "POWER", 5) == 0) {
        pvn_topo_copy_text(cpu->vendor, sizeof(cpu->vendor), "IBM");
        pvn_topo_copy_text(cpu->model_name, sizeof(cpu->model_name), v);
        cpu->arch = PVN_TOPO_ARCH_PPC64;
    } else if ((v = line_value(line, "cpu family")) && cpu->family == PVN_TOPO_UNKNOWN) {
        pvn_topo_parse_int(v, 10, 0, 65535, &cpu->family);
    } else if ((v = line_value(line, "model")) && cpu->model == PVN_TOPO_UNKNOWN) {
        pvn_topo_parse_int(v, 10, 0, 65535, &cpu->model);
    } else if ((v = line_value(line, "model name")) && cpu->model_name[0] == '\0') {
        pvn_topo_copy_text(cpu->model_name, sizeof(cpu->model_name), v);
    }
}

static void cpuinfo_line(struct cpuinfo *info, char *line)
{
    struct pvn_topo *t = info->t;
    const char *v;
    int id;

    cpuinfo_identity(&t->cpu, line);
    if (line_value(line, "processor")) {
        t->cpu.logical = t->cpu.logical == PVN_TOPO_UNKNOWN ? 1 : t->cpu.logical + 1;
    } else if ((v = line_value(line, "physical id"))) {
        if (pvn_topo_parse_int(v, 10, 0, (long)sizeof(info->seen) * 8 - 1, &id) &&
            (info->seen[id / 8] & 1 << id % 8) == 0) {
            info->seen[id / 8] |= (unsigned char)(1 << id % 8);
            t->cpu.sockets = t->cpu.sockets == PVN_TOPO_UNKNOWN ? 1 : t->cpu.sockets + 1;
        }
    } else if ((v = line_value(line, "flags")) && t->guest.cpu_flag == PVN_TOPO_TRI_UNKNOWN) {
        t->guest.cpu_flag = has_word(v, "hypervisor") ? PVN_TOPO_TRI_YES : PVN_TOPO_TRI_NO;
    }
}

static int read_cpus(struct pvn_topo_reader *r)
{
    struct cpuinfo info = {.t = r->topo};
    char *text, *save = NULL;
    size_t len;
    int rc;

    r->topo->cpu.family = r->topo->cpu.model = PVN_TOPO_UNKNOWN;
    r->topo->cpu.sockets = r->topo->cpu.logical = PVN_TOPO_UNKNOWN;
    rc = pvn_topo_fs_read_all(r->fs, "/proc/cpuinfo", CPUINFO_MAX, &text, &len);
    if (rc == -ENOMEM)
        return pvn_topo_reader_nomem(r);
    if (rc != 0)
        return 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        cpuinfo_line(&info, line);
    pvn_topo_clean_text(r->topo->cpu.vendor);
    pvn_topo_clean_text(r->topo->cpu.model_name);
    free(text);
    return 0;
}

/* Reads a text file of any length, which the model then owns; "" if it cannot be read. NULL if
 * memory is short. */
static char *read_owned(struct pvn_topo_reader *r, const char *dir, const char *name)
{
    char path[PVN_TOPO_FS_PATH_MAX];
    char *text = NULL;
    size_t len;
    int rc;

    snprintf(path, sizeof(path), "%.4000s/%s", dir, name);
    rc = pvn_topo_fs_read_all(r->fs, path, MAP_MAX, &text, &len);
    if (rc != 0)
        return rc == -ENOMEM ? NULL : strdup("");
    pvn_topo_clean_text(text);
    return text;
}

static int read_distances(struct pvn_topo_reader *r, const char *dir, struct pvn_topo_numa *node)
{
    char text[8192];
    const char *at = text;

    if (!pvn_topo_read_text(r, dir, "distance", text, sizeof(text)))
        return 0;
    while (node->ndistance < PVN_TOPO_MAX_NUMAS) {
        char *end;
        long v = strtol(at, &end, 10);
        int *slot;

        if (end == at)
            break;
        slot = pvn_topo_array_add((void **)&node->distance, &node->ndistance, sizeof(*slot));
        if (!slot)
            return pvn_topo_reader_nomem(r);
        *slot = v >= 0 && v <= 65535 ? (int)v : PVN_TOPO_UNKNOWN;
        at = end;
    }
    return 0;
}

static int read_numa(struct pvn_topo_reader *r, const char *parent, int id)
{
    char name[32], dir[PVN_TOPO_FS_PATH_MAX];
    struct pvn_topo_numa *node;

    snprintf(name, sizeof(name), "node%d", id);
    if (!pvn_topo_real_below(r, parent, name, dir))
        return 0;
    node = pvn_topo_array_add((void **)&r->topo->numas, &r->topo->nnumas, sizeof(*node));
    if (!node)
        return pvn_topo_reader_nomem(r);
    node->id = id;
    node->cpumap = read_owned(r, dir, "cpumap");
    node->cpulist = read_owned(r, dir, "cpulist");
    if (!node->cpumap || !node->cpulist)
        return pvn_topo_reader_nomem(r);
    /* Old captures have the map and no list. */
    node->has_cpus = strpbrk(node->cpumap, "123456789abcdefABCDEF") || node->cpulist[0] != '\0';
    return read_distances(r, dir, node);
}

static int read_numas(struct pvn_topo_reader *r)
{
    char real[PVN_TOPO_FS_PATH_MAX];
    struct pvn_topo_fs_names names;
    int *ids = NULL, n = 0, rc = 0;

    if (!pvn_topo_real_below(r, "", node_dir + 1, real) ||
        pvn_topo_fs_list(r->fs, real, &names) != 0)
        return 0; /* a kernel without NUMA has no such directory */
    for (int i = 0; i < names.n && rc == 0; i++) {
        int id, *slot;

        if (strncmp(names.name[i], "node", 4) != 0 ||
            !pvn_topo_parse_int(names.name[i] + 4, 10, 0, 65535, &id))
            continue;
        slot = n < PVN_TOPO_MAX_NUMAS ? pvn_topo_array_add((void **)&ids, &n, sizeof(*ids)) : NULL;
        if (!slot) {
            rc = n < PVN_TOPO_MAX_NUMAS
                     ? pvn_topo_reader_nomem(r)
                     : pvn_topo_reader_too_many(r, "NUMA nodes", PVN_TOPO_MAX_NUMAS);
            break;
        }
        *slot = id;
    }
    pvn_topo_fs_names_free(&names);
    if (n > 1)
        qsort(ids, (size_t)n, sizeof(*ids), pvn_topo_by_number);
    for (int i = 0; i < n && rc == 0; i++)
        if (i == 0 || ids[i] != ids[i - 1])
            rc = read_numa(r, real, ids[i]);
    free(ids);
    return rc;
}

/* Adds a note if the list of nodes is missing or incomplete. A kernel without NUMA has neither the
 * directory nor numa_node files; if there are such files, the list could not be read. Each node
 * gives its distance to every node. */
void pvn_topo_note_numas(struct pvn_topo_reader *r)
{
    const struct pvn_topo *t = r->topo;

    for (int i = 0; t->nnumas == 0 && i < t->npci; i++) {
        if (t->pci[i].numa_text[0] != '\0') {
            pvn_topo_leave_unread(r, PVN_TOPO_UNREAD_NUMAS, node_dir, -ENOENT,
                                  "no NUMA node is known");
            return;
        }
    }
    for (int i = 0; (r->flags & PVN_TOPO_PARTIAL) == 0 && i < t->nnumas; i++) {
        if (t->numas[i].ndistance > t->nnumas) {
            r->topo->unread |= PVN_TOPO_UNREAD_NUMAS;
            pvn_topo_leave_note(
                r, node_dir,
                "node%d names distances to %d nodes, %d can be read: the others are "
                "unknown",
                t->numas[i].id, t->numas[i].ndistance, t->nnumas);
            return;
        }
    }
}

static int read_iommu(struct pvn_topo_reader *r)
{
    struct pvn_topo *t = r->topo;
    char real[PVN_TOPO_FS_PATH_MAX];
    struct pvn_topo_fs_names names;
    size_t used = 0;
    int rc = 0;

    t->iommu.ngroups = PVN_TOPO_UNKNOWN;
    if (pvn_topo_fs_list(r->fs, "/sys/class/iommu", &names) == 0) {
        t->iommu.present = names.n > 0 ? PVN_TOPO_TRI_YES : PVN_TOPO_TRI_NO;
        for (int i = 0; i < names.n && used < sizeof(t->iommu.names); i++) {
            used += (size_t)snprintf(t->iommu.names + used, sizeof(t->iommu.names) - used, "%s%s",
                                     i > 0 ? " " : "", names.name[i]);
        }
        pvn_topo_clean_text(t->iommu.names);
        pvn_topo_fs_names_free(&names);
    }
    if (pvn_topo_fs_list(r->fs, "/sys/kernel/iommu_groups", &names) != 0)
        return 0;
    t->iommu.ngroups = names.n;
    for (int i = 0; i < names.n && rc == 0; i++) {
        struct pvn_topo_iommu_group *g;
        int id;

        if (!pvn_topo_parse_int(names.name[i], 10, 0, INT_MAX, &id) ||
            !pvn_topo_real_below(r, "/sys/kernel/iommu_groups", names.name[i], real))
            continue;
        g = pvn_topo_array_add((void **)&t->iommu_groups, &t->niommu_groups, sizeof(*g));
        if (!g) {
            rc = pvn_topo_reader_nomem(r);
            break;
        }
        g->id = id;
        pvn_topo_read_text(r, real, "type", g->type, sizeof(g->type));
    }
    pvn_topo_fs_names_free(&names);
    return rc;
}

static void read_dmi(struct pvn_topo_reader *r)
{
    struct pvn_topo_guest *g = &r->topo->guest;
    char dir[PVN_TOPO_FS_PATH_MAX];

    if (!pvn_topo_real_below(r, "/sys/class/dmi", "id", dir) &&
        !pvn_topo_real_below(r, "/sys/devices/virtual/dmi", "id", dir))
        return;
    pvn_topo_read_text(r, dir, "sys_vendor", g->sys_vendor, sizeof(g->sys_vendor));
    pvn_topo_read_text(r, dir, "product_name", g->product_name, sizeof(g->product_name));
    pvn_topo_read_text(r, dir, "bios_vendor", g->bios_vendor, sizeof(g->bios_vendor));
    pvn_topo_read_text(r, dir, "bios_version", g->bios_version, sizeof(g->bios_version));
    pvn_topo_read_text(r, dir, "board_vendor", g->board_vendor, sizeof(g->board_vendor));
    pvn_topo_read_text(r, dir, "board_name", g->board_name, sizeof(g->board_name));
}

bool pvn_topo_cmdline_word_kept(const char *word)
{
    static const char *const kept[] = {
        "iommu",  "intel_iommu", "amd_iommu", "arm-smmu",           "pci=", "pcie_",
        "nvidia", "NVreg",       "vfio",      "default_hugepagesz", "numa"};

    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        if (strncmp(word, kept[i], strlen(kept[i])) == 0)
            return true;
    return false;
}

static void read_kernel(struct pvn_topo_reader *r)
{
    struct pvn_topo *t = r->topo;
    char text[8192], *save = NULL;
    char real[PVN_TOPO_FS_PATH_MAX];
    size_t used = 0;

    if (!pvn_topo_real_below(r, "", "proc", real)) {
        pvn_topo_leave_unread(r, PVN_TOPO_UNREAD_PROC, "/proc", -ENOENT,
                              "CPUs, kernel and limits are unknown");
        return;
    }
    if (pvn_topo_read_text(r, real, "version", text, sizeof(text)))
        sscanf(text, "Linux version %127s", t->kernel);
    if (!pvn_topo_read_text(r, real, "cmdline", text, sizeof(text)))
        return;
    for (char *word = strtok_r(text, " \t\n", &save); word; word = strtok_r(NULL, " \t\n", &save)) {
        if (pvn_topo_cmdline_word_kept(word) && used < sizeof(t->cmdline)) {
            used += (size_t)snprintf(t->cmdline + used, sizeof(t->cmdline) - used, "%s%s",
                                     used > 0 ? " " : "", word);
        }
    }
}

static int read_modules(struct pvn_topo_reader *r)
{
    static const char *const modules[] = {
        "nvidia",    "nvidia_uvm", "nvidia_peermem", "nv_peer_mem", "gdrdrv",  "ib_core",
        "ib_uverbs", "rdma_cm",    "rdma_ucm",       "vmw_pvrdma",  "vmxnet3", "vmw_vmci",
        "mlx4_ib",   "mlx5_core",  "mlx5_ib",        "bnxt_re",     "irdma",   "efa",
        "rdma_rxe",  "siw",        "hfi1",           "qedr",        "erdma",   "mana_ib",
        "amdgpu",    "vfio_pci",   "nvidia_fs",
    };
    char sys[PVN_TOPO_FS_PATH_MAX], dir[PVN_TOPO_FS_PATH_MAX];

    if (!pvn_topo_real_below(r, "/sys", "module", sys)) {
        pvn_topo_leave_unread(r, PVN_TOPO_UNREAD_MODULES, "/sys/module", -ENOENT,
                              "no driver's module is known");
        return 0;
    }
    r->topo->modules_known = PVN_TOPO_TRI_YES;
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
        struct pvn_topo_module *m;

        if (!pvn_topo_real_below(r, sys, modules[i], dir))
            continue;
        m = pvn_topo_array_add((void **)&r->topo->modules, &r->topo->nmodules, sizeof(*m));
        if (!m)
            return pvn_topo_reader_nomem(r);
        pvn_topo_copy_text(m->name, sizeof(m->name), modules[i]);
        pvn_topo_read_text(r, dir, "version", m->version, sizeof(m->version));
    }
    return 0;
}

static bool parse_limit(const char *text, uint64_t *value)
{
    unsigned long long v;

    if (strcmp(text, "unlimited") == 0) {
        *value = UINT64_MAX;
        return true;
    }
    if (sscanf(text, "%19llu", &v) != 1)
        return false;
    *value = v;
    return true;
}

static void read_limits(struct pvn_topo_reader *r)
{
    struct pvn_topo *t = r->topo;
    char text[4096], soft[32], hard[32];
    ssize_t got = pvn_topo_fs_read(r->fs, "/proc/self/limits", text, sizeof(text) - 1);
    const char *line;

    text[got > 0 ? got : 0] = '\0';
    line = strstr(text, "Max locked memory");
    if (line && sscanf(line, "Max locked memory %31s %31s", soft, hard) == 2) {
        t->memlock_known =
            parse_limit(soft, &t->memlock_soft) && parse_limit(hard, &t->memlock_hard);
    }
    line = strstr(text, "Max open files");
    if (line && sscanf(line, "Max open files %31s %31s", soft, hard) == 2)
        t->files_known = parse_limit(soft, &t->files_soft) && parse_limit(hard, &t->files_hard);
}

int pvn_topo_read_system(struct pvn_topo_reader *r)
{
    int rc = read_cpus(r);

    if (rc == 0)
        rc = read_numas(r);
    if (rc == 0)
        rc = read_iommu(r);
    if (rc == 0)
        rc = read_modules(r);
    read_dmi(r);
    read_kernel(r);
    read_limits(r);
    return rc;
}
