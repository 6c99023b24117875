/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Profiles, and the sources of the configuration */
#include "sv_int.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Sources of the numbers. pvrdma: the mainline driver and provider on QEMU's device, as measured in
 * the project's device lab. rxe: the kernel's Soft-RoCE 6.1. roce: what a ConnectX of recent years
 * says. */
static const struct sv_profile profiles[] = {
    {
        .name = "pvrdma",
        .dev_name = "vmw_pvrdma",
        .driver = "vmw_pvrdma",
        .hca_type = "VMW_PVRDMA-1.0.1.0-k",
        .fw_ver = "0.0.014",
        .vendor_id = 0x15ad,
        .part_id = 0x0820,
        .devices = 1,
        .ports = 1,
        .host = 1,
        .max_inline = 0,
        .max_sge = 4,
        .max_qp_wr = 10467,
        .max_cqe = 28672,
        .max_cq_ring = 4096,
        .sq_ring_bytes = 128 * 4096,
        .pow2 = 1,
        .max_mr_size = 1L << 30,
        .max_qp = 1024,
        .max_cq = 2048,
        .max_mr = 1024,
        .max_pd = 1024,
        .rd_atom = 16,
        .atomics = 1,
        .ignore_iova = 1,
        .max_msg_sz = 1024,
        .comp_vectors = 1,
        .speed = 1,
        .width = 1,
        .mtu = IBV_MTU_1024,
        .gid_v2 = 1,
        .gid_tbl_len = 255,
        .link_local = 1,
        .ipv4 = 1,
        .ethernet = 1,
        .doorbell_poll = 1,
        .interruptible = 1,
        .routed = 1,
        .seed = 1,
    },
    {
        .name = "roce",
        .dev_name = "mlx5_",
        .driver = "mlx5_core",
        .hca_type = "MT4129",
        .fw_ver = "28.39.1002",
        .vendor_id = 0x02c9,
        .part_id = 4129,
        .devices = 1,
        .ports = 1,
        .host = 1,
        .max_inline = 220,
        .max_sge = 30,
        .max_qp_wr = 32768,
        .max_cqe = 4194303,
        .max_cq_ring = 4194304,
        .pow2 = 1,
        .max_mr_size = 1L << 46,
        .max_qp = 131072,
        .max_cq = 1 << 24,
        .max_mr = 1 << 24,
        .max_pd = 1 << 23,
        .rd_atom = 16,
        .atomics = 1,
        .dmabuf = 1,
        .relaxed_ordering = 1,
        .max_msg_sz = 1L << 30,
        .enforce_msg_sz = 1,
        .comp_vectors = 8,
        .speed = 64,
        .width = 2,
        .mtu = IBV_MTU_4096,
        .gid_v1 = 1,
        .gid_v2 = 1,
        .gid_tbl_len = 255,
        .link_local = 1,
        .ipv4 = 1,
        .ethernet = 1,
        .check_mtu = 1,
        .routed = 1,
        .fork_safe = 1,
        .uc = 1,
        .seed = 1,
    },
    {
        .name = "rxe",
        .dev_name = "rxe",
        .driver = "rdma_rxe",
        .hca_type = "",
        .fw_ver = "",
        .vendor_id = 0xffffff,
        .part_id = 0,
        .devices = 1,
        .ports = 1,
        .host = 1,
        .max_inline = 400,
        .max_sge = 32,
        .max_qp_wr = 1048576,
        .max_cqe = 32767,
        .max_cq_ring = 32767,
        .max_mr_size = 1L << 46,
        .max_qp = 1048560,
        .max_cq = 1048576,
        .max_mr = 524287,
        .max_pd = 1048576,
        .rd_atom = 128,
        .atomics = 1,
        .relaxed_ordering = 1,
        .max_msg_sz = 8L << 20,
        .comp_vectors = 1,
        .speed = 1,
        .width = 1,
        .mtu = IBV_MTU_1024,
        .gid_v2 = 1,
        .gid_tbl_len = 255,
        .link_local = 1,
        .ipv4 = 1,
        .ethernet = 1,
        .soft_status = 1,
        .retry7_endless = 1,
        .check_mtu = 1,
        .routed = 1,
        .seed = 1,
    },
    {
        .name = "ib",
        .dev_name = "mlx5_",
        .driver = "mlx5_core",
        .hca_type = "MT4129",
        .fw_ver = "28.39.1002",
        .vendor_id = 0x02c9,
        .part_id = 4129,
        .devices = 1,
        .ports = 1,
        .host = 1,
        .max_inline = 220,
        .max_sge = 30,
        .max_qp_wr = 32768,
        .max_cqe = 4194303,
        .max_cq_ring = 4194304,
        .pow2 = 1,
        .max_mr_size = 1L << 46,
        .max_qp = 131072,
        .max_cq = 1 << 24,
        .max_mr = 1 << 24,
        .max_pd = 1 << 23,
        .rd_atom = 16,
        .atomics = 1,
        .dmabuf = 1,
        .relaxed_ordering = 1,
        .max_msg_sz = 1L << 30,
        .enforce_msg_sz = 1,
        .comp_vectors = 8,
        .speed = 128,
        .width = 2,
        .mtu = IBV_MTU_4096,
        .gid_tbl_len = 8,
        .link_local = 1,
        .check_mtu = 1,
        .routed = 1,
        .fork_safe = 1,
        .seed = 1,
    },
};

static const struct {
    const char *name;
    size_t offset;
} keys[] = {
#define KEY(f)                                                                                     \
    {                                                                                              \
#f, offsetof(struct sv_profile, f)                                                         \
    }
    KEY(vendor_id),     KEY(part_id),        KEY(devices),
    KEY(ports),         KEY(host),           KEY(max_inline),
    KEY(max_sge),       KEY(max_qp_wr),      KEY(max_cqe),
    KEY(max_cq_ring),   KEY(sq_ring_bytes),  KEY(pow2),
    KEY(max_mr_size),   KEY(max_qp),         KEY(max_cq),
    KEY(max_mr),        KEY(max_pd),         KEY(rd_atom),
    KEY(atomics),       KEY(dmabuf),         KEY(relaxed_ordering),
    KEY(ignore_iova),   KEY(max_msg_sz),     KEY(enforce_msg_sz),
    KEY(comp_vectors),  KEY(speed),          KEY(width),
    KEY(mtu),           KEY(gid_v1),         KEY(gid_v2),
    KEY(gid_tbl_len),   KEY(link_local),     KEY(ipv4),
    KEY(ethernet),      KEY(no_link_layer),  KEY(grh_required),
    KEY(doorbell_poll), KEY(doorbell_ns),    KEY(command_us),
    KEY(interruptible), KEY(soft_status),    KEY(retry7_endless),
    KEY(check_mtu),     KEY(memlock_kb),     KEY(async),
    KEY(real_time),     KEY(timeout_cap_ms), KEY(descend),
    KEY(stay),          KEY(routed),         KEY(no_write),
    KEY(fork_safe),     KEY(cuda),           KEY(peer_memory),
    KEY(no_pci),        KEY(iwarp),          KEY(uc),
    KEY(seed),
#undef KEY
};

int sv_profile_by_name(struct sv_profile *p, const char *name)
{
    bool cuda = !strcmp(name, "cuda"); /* the adapter of "roce", beside GPUs */
    if (cuda)
        name = "roce";
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++)
        if (!strcmp(profiles[i].name, name)) {
            *p = profiles[i];
            p->cuda = cuda;
            return 0;
        }
    return ENOENT;
}

int sv_profile_set(struct sv_profile *p, const char *key, const char *value)
{
    if (!strcmp(key, "dev_name")) {
        if (strlen(value) >= sizeof p->dev_name)
            return ENAMETOOLONG;
        strcpy(p->dev_name, value);
        return 0;
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(keys[i].name, key))
            continue;
        char *end;
        errno = 0;
        long v = strtol(value, &end, 0);
        if (errno || end == value || *end || v < 0)
            return EINVAL;
        *(long *)((char *)p + keys[i].offset) = v;
        return 0;
    }
    return ENOENT;
}

static int check_profile(const struct sv_profile *p)
{
    if (p->devices > SV_DEV_MAX || p->ports < 1 || p->ports > SV_PORT_MAX || p->max_sge < 1 ||
        p->max_sge > SV_SGE_MAX || p->max_inline > SV_INLINE_MAX || p->gid_tbl_len > SV_GID_MAX ||
        p->host < 1 || p->host > 254)
        return ERANGE;
    return 0;
}

/* Copies one line of the text, without its comment and surrounding blanks. Returns the start of
 * the next line. */
static const char *take_line(const char *text, char *line, size_t size)
{
    size_t n = strcspn(text, "\n;");
    size_t len = n < size ? n : size - 1;
    while (len && strchr(" \t", *text)) {
        text++;
        n--;
        len--;
    }
    memcpy(line, text, len);
    line[len] = '\0';
    /* "#3" is not a comment but a queue pair. */
    for (char *hash = strchr(line, '#'); hash; hash = strchr(hash + 1, '#')) {
        if (!isdigit((unsigned char)hash[1])) {
            *hash = '\0';
            break;
        }
    }
    for (size_t k = strlen(line); k && strchr(" \t\r", line[k - 1]); k--)
        line[k - 1] = '\0';
    text += n;
    return *text ? text + 1 : text;
}

static int config_error(const char *line, int rc, const char *why)
{
    fprintf(stderr, "softverbs: \"%s\": %s\n", line, why && *why ? why : strerror(rc));
    return rc;
}

/* Applies the lines that define the devices first, and then (second pass) the commands on them. */
static int apply(const char *text, bool second)
{
    char line[400], why[200];
    while (*text) {
        text = take_line(text, line, sizeof line);
        if (!line[0])
            continue;
        char key[64], value[64];
        bool profile = sscanf(line, "profile %63s", value) == 1;
        bool set = !profile && sscanf(line, "set %63s %63s", key, value) == 2;
        int rc = 0;
        why[0] = '\0';
        if (!second && profile)
            rc = sv_profile_by_name(&sv.p, value);
        else if (!second && set)
            rc = sv_profile_set(&sv.p, key, value);
        else if (second && !profile && !set)
            rc = sv_command_locked(line, why, sizeof why);
        if (rc)
            return config_error(line, rc, why);
    }
    return 0;
}

/* Returns the environment as the text of a configuration, which the caller frees. */
static char *from_environment(void)
{
    static const char *const files[] = {"PVN_SOFTVERBS_CONFIG", "PVN_SOFTVERBS_FAULTS"};
    static const struct {
        const char *env, *key;
    } vars[] = {
        {"PVN_SOFTVERBS_DEVICES", "set devices"},
        {"PVN_SOFTVERBS_PORTS", "set ports"},
        {"PVN_SOFTVERBS_HOST", "set host"},
        {"PVN_SOFTVERBS_SEED", "set seed"},
    };
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    const char *v = getenv("PVN_SOFTVERBS_PROFILE");
    if (v)
        fprintf(out, "profile %s\n", v);
    for (size_t i = 0; i < 2; i++) {
        v = getenv(files[i]);
        FILE *in = v ? fopen(v, "re") : NULL;
        if (v && !in)
            fprintf(out, "unreadable-file %s\n", v); /* refused by name below */
        for (int c; in && (c = fgetc(in)) != EOF;)
            fputc(c, out);
        if (in)
            fclose(in);
        fputc('\n', out);
    }
    for (size_t i = 0; i < sizeof vars / sizeof vars[0]; i++)
        if ((v = getenv(vars[i].env)))
            fprintf(out, "%s %s\n", vars[i].key, v);
    if ((v = getenv("PVN_SOFTVERBS_SET")))
        fprintf(out, "%s\n", v);
    fclose(out);
    return text;
}

int sv_load_config(const char *text)
{
    char *env = text ? NULL : from_environment();
    if (!text && !env)
        return ENOMEM;
    if (!text)
        text = env;
    const char *dir = getenv("PVN_SOFTVERBS_DIR"), *sysfs = getenv("PVN_SOFTVERBS_SYSFS");
    snprintf(sv.sysfs, sizeof sv.sysfs, "%s", sysfs ? sysfs : "");
    sv.rules = 0;
    memset(&sv.total, 0, sizeof sv.total);
    sv.messages = sv.ghosts_landed = sv.ghosts_refused = sv.interrupted = sv.overlaps = 0;
    sv.relaxed_held = 0;
    sv.qp_serial = sv.leaked = 0;
    sv.loading = true;
    int rc = sv_profile_by_name(&sv.p, "pvrdma");
    if (dir && strlen(dir) >= sizeof sv.dir)
        rc = config_error(dir, ENAMETOOLONG, "PVN_SOFTVERBS_DIR must be a path of under 80 bytes");
    else
        snprintf(sv.dir, sizeof sv.dir, "%s", dir ? dir : "");
    if (!rc)
        rc = apply(text, false);
    if (!rc && (rc = check_profile(&sv.p)))
        rc = config_error("set", rc, "a value is beyond what softverbs can play (see README.md)");
    if (!rc) {
        sv.rng = (uint64_t)sv.p.seed * 0x9e3779b97f4a7c15u + 1;
        sv_devices_build();
        rc = apply(text, true);
    }
    free(env);
    sv.loading = false;
    if (!rc)
        sv_sysfs_refresh(NULL, 0, 0);
    return rc;
}

SV_EXPORT int sv_configure(const char *text)
{
    pthread_mutex_lock(&sv.lock);
    int rc = EBUSY;
    if (!sv.ctxs) {
        rc = sv_load_config(text);
        sv.ready = true;
    }
    pthread_mutex_unlock(&sv.lock);
    return rc;
}
