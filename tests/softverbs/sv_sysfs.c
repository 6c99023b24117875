/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The devices as a sysfs tree below a directory that the test names */
#include "sv_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int make_parents(char *path)
{
    for (char *s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
        *s = '\0';
        int rc = mkdir(path, 0755) && errno != EEXIST ? errno : 0;
        *s = '/';
        if (rc)
            return rc;
    }
    return 0;
}

/* Writes one attribute file. The first error stays in *rc. Files are replaced as a whole, so that
 * readers see the old text or the new one, even if another process writes the same tree. */
__attribute__((format(printf, 3, 4))) static void put(int *rc, const char *path, const char *fmt,
                                                      ...)
{
    char full[512], tmp[540];
    if (*rc)
        return;
    if (snprintf(full, sizeof full, "%s/%s", sv.sysfs, path) >= (int)sizeof full) {
        *rc = ENAMETOOLONG;
        return;
    }
    snprintf(tmp, sizeof tmp, "%s~%d", full, getpid());
    FILE *f = fopen(tmp, "we");
    if (!f && errno == ENOENT && !(*rc = make_parents(full)))
        f = fopen(tmp, "we");
    if (*rc)
        return;
    if (!f) {
        *rc = errno;
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    vfprintf(f, fmt, ap);
    va_end(ap);
    fputc('\n', f);
    if (fclose(f) || rename(tmp, full))
        *rc = errno;
}

static void link_to(int *rc, const char *path, const char *target)
{
    char full[512];
    if (*rc)
        return;
    if (snprintf(full, sizeof full, "%s/%s", sv.sysfs, path) >= (int)sizeof full)
        *rc = ENAMETOOLONG;
    else if (!(*rc = make_parents(full)) && symlink(target, full) && errno != EEXIST)
        *rc = errno;
}

static void gid_text(const union ibv_gid *g, char *out)
{
    for (int i = 0; i < 16; i += 2)
        out += sprintf(out, "%s%02x%02x", i ? ":" : "", g->raw[i], g->raw[i + 1]);
}

/* Every row of gids can be read, but types and ndevs only for rows in use, as in the kernel. */
static void put_gid(int *rc, const char *port_dir, unsigned int i, const struct sv_gid *g)
{
    char path[256], text[40], full[512];
    snprintf(path, sizeof path, "%s/gids/%u", port_dir, i);
    gid_text(g->valid ? &g->gid : &(union ibv_gid){{0}}, text);
    put(rc, path, "%s", text);
    static const char *const attrs[] = {"types", "ndevs"};
    for (int a = 0; a < 2; a++) {
        snprintf(path, sizeof path, "%s/gid_attrs/%s/%u", port_dir, attrs[a], i);
        if (g->valid && (a == 0 || g->ndev[0])) {
            put(rc, path, "%s", a ? g->ndev : g->type == 2 ? "RoCE v2" : "IB/RoCE v1");
        } else if (snprintf(full, sizeof full, "%s/%s", sv.sysfs, path) < (int)sizeof full) {
            unlink(full);
        }
    }
}

static const char *rate_text(void)
{
    static const char *const lanes[] = {"?", "1X", "4X", "?", "8X"};
    static const double gb[] = {0, 2.5, 5};
    static char text[40];
    double per = sv.p.speed <= 2                      ? gb[sv.p.speed]
                 : sv.p.speed == 4 || sv.p.speed == 8 ? 10
                 : sv.p.speed == 16                   ? 14
                 : sv.p.speed == 32                   ? 25
                 : sv.p.speed == 64                   ? 50
                 : sv.p.speed == 128                  ? 100
                                                      : 200;
    int n = sv.p.width == 1 ? 1 : sv.p.width == 2 ? 4 : sv.p.width == 4 ? 8 : 12;
    snprintf(text, sizeof text, "%g Gb/sec (%s)", per * n,
             sv.p.width <= 4 ? lanes[sv.p.width] : "12X");
    return text;
}

static void put_port(int *rc, const struct sv_dev *d, int port)
{
    char dir[128], path[256];
    const struct sv_port *p = &d->port[port - 1];
    bool active = p->state == IBV_PORT_ACTIVE;
    snprintf(dir, sizeof dir, "class/infiniband/%s/ports/%d", d->ibv.name, port);
    const struct {
        const char *name, *text;
    } attrs[] = {
        {"state", active ? "4: ACTIVE" : "1: DOWN"},
        {"phys_state", active ? "5: LinkUp" : "3: Disabled"},
        {"link_layer", sv.p.ethernet ? "Ethernet" : "InfiniBand"},
        {"rate", rate_text()},
        {"lid", "0x0"},
        {"pkeys/0", "0xffff"},
    };
    for (size_t i = 0; i < sizeof attrs / sizeof attrs[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, attrs[i].name);
        put(rc, path, "%s", attrs[i].text);
    }
    for (unsigned int i = 0; i < (unsigned int)sv.p.gid_tbl_len; i++)
        put_gid(rc, dir, i, &p->gid[i]);
}

static void put_netdev(int *rc, const struct sv_dev *d, int port, const char *pci)
{
    char path[256], target[256];
    unsigned int rail = d->index * SV_PORT_MAX + (unsigned int)port - 1;
    bool active = d->port[port - 1].state == IBV_PORT_ACTIVE;
    snprintf(path, sizeof path, "class/net/sveth%u/operstate", rail);
    put(rc, path, "%s", active ? "up" : "down");
    snprintf(path, sizeof path, "class/net/sveth%u/address", rail);
    put(rc, path, "50:54:%02x:00:%02x:%02x", (unsigned int)sv.p.host, rail,
        (unsigned int)sv.p.host);
    snprintf(path, sizeof path, "class/net/sveth%u/mtu", rail);
    put(rc, path, "1500");
    snprintf(path, sizeof path, "class/net/sveth%u/speed", rail);
    put(rc, path, "10000");
    if (sv.p.no_pci)
        return;
    snprintf(path, sizeof path, "class/net/sveth%u/device", rail);
    snprintf(target, sizeof target, "../../../bus/pci/devices/%s", pci);
    link_to(rc, path, target);
}

static void put_functions(int *rc, const struct sv_dev *d, const char *rdma_pci,
                          const char *net_pci)
{
    char path[256], target[256];
    bool pair = strcmp(rdma_pci, net_pci) != 0;
    const struct {
        const char *pci, *driver;
        long vendor, device, class;
    } fns[] = {{rdma_pci, sv.p.driver, sv.p.vendor_id, sv.p.part_id, 0x020000},
               {net_pci, "vmxnet3", 0x15ad, 0x07b0, 0x020000}};
    for (int i = 0; i < 1 + pair; i++) {
        snprintf(path, sizeof path, "bus/pci/devices/%s/vendor", fns[i].pci);
        put(rc, path, "0x%04lx", fns[i].vendor);
        snprintf(path, sizeof path, "bus/pci/devices/%s/device", fns[i].pci);
        put(rc, path, "0x%04lx", fns[i].device);
        snprintf(path, sizeof path, "bus/pci/devices/%s/class", fns[i].pci);
        put(rc, path, "0x%06lx", fns[i].class);
        snprintf(path, sizeof path, "bus/pci/devices/%s/numa_node", fns[i].pci);
        put(rc, path, "-1");
        snprintf(path, sizeof path, "bus/pci/drivers/%s/module", fns[i].driver);
        put(rc, path, "%s", fns[i].driver);
        snprintf(path, sizeof path, "bus/pci/devices/%s/driver", fns[i].pci);
        snprintf(target, sizeof target, "../../drivers/%s", fns[i].driver);
        link_to(rc, path, target);
    }
    snprintf(target, sizeof target, "../../../bus/pci/devices/%s", rdma_pci);
    snprintf(path, sizeof path, "class/infiniband/%s/device", d->ibv.name);
    link_to(rc, path, target);
    snprintf(path, sizeof path, "class/infiniband_verbs/%s/device", d->ibv.dev_name);
    link_to(rc, path, target);
}

static void put_device(int *rc, const struct sv_dev *d)
{
    char path[256], rdma_pci[32], net_pci[32];
    bool pair =
        !strcmp(sv.p.name, "pvrdma"); /* function 0 is the vmxnet3, function 1 the RDMA device */
    snprintf(rdma_pci, sizeof rdma_pci, "0000:%02x:00.%d", d->index + 3, pair);
    snprintf(net_pci, sizeof net_pci, "0000:%02x:00.0", d->index + 3);
    uint8_t g[8];
    __be64 guid = ibv_get_device_guid((struct ibv_device *)&d->ibv);
    memcpy(g, &guid, sizeof g);
    char guid_text[24];
    snprintf(guid_text, sizeof guid_text, "%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1], g[2],
             g[3], g[4], g[5], g[6], g[7]);
    const struct {
        const char *name, *text;
    } attrs[] = {
        {"node_type", "1: CA"},   {"fw_ver", sv.p.fw_ver},       {"hca_type", sv.p.hca_type},
        {"node_guid", guid_text}, {"sys_image_guid", guid_text}, {"board_id", "1"},
    };
    for (size_t i = 0; i < sizeof attrs / sizeof attrs[0]; i++) {
        snprintf(path, sizeof path, "class/infiniband/%s/%s", d->ibv.name, attrs[i].name);
        put(rc, path, "%s", attrs[i].text);
    }
    if (!sv.p.no_pci)
        put_functions(rc, d, rdma_pci, net_pci);
    snprintf(path, sizeof path, "class/infiniband_verbs/%s/ibdev", d->ibv.dev_name);
    put(rc, path, "%s", d->ibv.name);
    snprintf(path, sizeof path, "class/infiniband_verbs/%s/abi_version", d->ibv.dev_name);
    put(rc, path, "3");
    for (int p = 1; p <= sv.p.ports; p++) {
        put_port(rc, d, p);
        if (sv.p.ethernet)
            put_netdev(rc, d, p, net_pci);
    }
}

static int write_all(void)
{
    int rc = 0;
    for (long i = 0; i < sv.p.devices; i++)
        put_device(&rc, &sv.dev[i]);
    return rc;
}

/* Writes changes: a row of a GID table, or everything if dev is NULL. */
void sv_sysfs_refresh(const struct sv_dev *dev, int port, int gid)
{
    int rc = 0;
    if (!sv.sysfs[0] || sv.loading)
        return;
    if (!dev) {
        rc = write_all();
    } else {
        char dir[128];
        snprintf(dir, sizeof dir, "class/infiniband/%s/ports/%d", dev->ibv.name, port);
        put_gid(&rc, dir, (unsigned int)gid, &dev->port[port - 1].gid[gid]);
    }
    if (rc)
        fprintf(stderr, "softverbs: sysfs tree %s: %s\n", sv.sysfs, strerror(rc));
}

SV_EXPORT int sv_write_sysfs(const char *root)
{
    sv_lock();
    int rc = strlen(root) < sizeof sv.sysfs ? 0 : ENAMETOOLONG;
    if (!rc) {
        strcpy(sv.sysfs, root);
        rc = write_all();
    }
    sv_unlock();
    return rc;
}
