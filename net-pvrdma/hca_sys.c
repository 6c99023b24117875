/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reads facts about RDMA ports from sysfs and from the network interfaces. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/read_line.h"
#include "net-pvrdma/hca_priv.h"

void pvn_hca_left_out(struct pvn_hca_table *t, const char *name, const char *fmt, ...)
{
    char why[320];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    pvn_str_append(t->left_out, sizeof(t->left_out), "%s%s (%s)", t->left_out[0] ? ", " : "", name,
                   why);
}

static const char *root(const struct pvn_hca_options *o)
{
    return o->sys_root && *o->sys_root ? o->sys_root : "/sys";
}

/* Reads the first line of a file below the sysfs root, without the line end. False if the file is not there. */
static bool read_attr(const struct pvn_hca_options *o, char *out, size_t cap, const char *fmt, ...)
    PVN_PRINTF(4, 5);

static bool read_attr(const struct pvn_hca_options *o, char *out, size_t cap, const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list ap;
    int n = snprintf(path, sizeof(path), "%s/", root(o));
    va_start(ap, fmt);
    vsnprintf(path + n, sizeof(path) - (size_t)n, fmt, ap);
    va_end(ap);
    return pvn_read_line(path, out, cap);
}

static bool listed(const struct pvn_verbs *v, struct ibv_device **list, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(v->get_device_name(list[i]), name) == 0)
            return true;
    return false;
}

void pvn_hca_name_missing(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                          struct ibv_device **list, int n, struct pvn_hca_table *t)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/class/infiniband", root(o));
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (e->d_name[0] != '.' && !listed(v, list, n, e->d_name))
            pvn_hca_left_out(
                t, e->d_name,
                "the kernel has it, libibverbs does not: install its provider (package "
                "ibverbs-providers), or in a container pass /dev/infiniband in");
    if (d)
        closedir(d);
}

void pvn_hca_read_pci(const struct pvn_hca_options *o, struct pvn_hca *h, unsigned int *vendor,
                      unsigned int *device)
{
    char path[PATH_MAX], real[PATH_MAX], text[64];
    if (read_attr(o, text, sizeof(text), "class/infiniband/%s/device/vendor", h->name))
        *vendor = (unsigned int)strtoul(text, NULL, 16);
    if (read_attr(o, text, sizeof(text), "class/infiniband/%s/device/device", h->name))
        *device = (unsigned int)strtoul(text, NULL, 16);
    snprintf(path, sizeof(path), "%s/class/infiniband/%s/device", root(o), h->name);
    if (realpath(path, real) && strlen(real) < sizeof(h->pci_path))
        strcpy(h->pci_path, real);
    snprintf(path, sizeof(path), "%s/class/infiniband/%s/device/driver", root(o), h->name);
    ssize_t n = readlink(path, real, sizeof(real) - 1);
    if (n > 0) {
        real[n] = '\0';
        const char *base = strrchr(real, '/');
        pvn_str_append(h->driver, sizeof(h->driver), "%s", base ? base + 1 : real);
    }
}

int pvn_hca_read_rate(const struct pvn_hca_options *o, const struct pvn_hca *h,
                      const struct pvn_hca_port *p)
{
    char text[64];
    if (!read_attr(o, text, sizeof(text), "class/infiniband/%s/ports/%u/rate", h->name, p->port))
        return 0;
    double gbps = strtod(text, NULL);
    return gbps > 0 && gbps < 1e5 ? (int)(gbps * 1000) : 0;
}

/* Finds the network interface of this PCI function. */
static bool netdev_of_function(const struct pvn_hca_options *o, const char *function, char *out,
                               size_t cap)
{
    char path[PATH_MAX], real[PATH_MAX];
    bool found = false;
    snprintf(path, sizeof(path), "%s/class/net", root(o));
    DIR *d = opendir(path);
    if (!d)
        return false;
    for (struct dirent *e; !found && (e = readdir(d));) {
        if (e->d_name[0] == '.' || strlen(e->d_name) >= cap)
            continue;
        snprintf(path, sizeof(path), "%s/class/net/%s/device", root(o), e->d_name);
        if (realpath(path, real) && !strcmp(real, function)) {
            strcpy(out, e->d_name);
            found = true;
        }
    }
    closedir(d);
    return found;
}

void pvn_hca_find_netdev(const struct pvn_hca_options *o, const struct pvn_hca *h,
                         struct pvn_hca_port *p)
{
    char text[64];
    /* The kernel names an interface for each row in use. All rows of a port name its interface or an upper
     * interface (VLAN) of it; the first row in use names the port's own. */
    for (int i = 0; i < 16 && !p->ifname[0]; i++)
        if (read_attr(o, text, sizeof(text), "class/infiniband/%s/ports/%u/gid_attrs/ndevs/%d",
                      h->name, p->port, i) &&
            strlen(text) < sizeof(p->ifname))
            strcpy(p->ifname, text);
    if (p->ifname[0] || !h->pci_path[0])
        return;
    char function[sizeof(h->pci_path)];
    strcpy(function, h->pci_path);
    size_t n = strlen(function);
    /* PVRDMA is function 1 of a slot whose function 0 is its vmxnet3. */
    if (h->kind == PVN_HCA_PVRDMA && n > 2 && function[n - 2] == '.')
        function[n - 1] = '0';
    netdev_of_function(o, function, p->ifname, sizeof(p->ifname));
}

/* ---- GIDs ---- */

static bool same_address(const struct sockaddr *sa, const uint8_t raw[16])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (sa->sa_family == AF_INET)
        return !memcmp(raw, mapped, sizeof(mapped)) &&
               !memcmp(raw + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
    return sa->sa_family == AF_INET6 &&
           !memcmp(raw, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
}

static uint8_t mask_bits(const struct sockaddr *mask)
{
    const uint8_t *b;
    size_t n;
    uint8_t bits = 0;
    if (mask->sa_family == AF_INET) {
        b = (const uint8_t *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr;
        n = 4;
        bits = 96;
    } else {
        b = (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr;
        n = 16;
    }
    for (size_t i = 0; i < n; i++)
        bits = (uint8_t)(bits + __builtin_popcount(b[i]));
    return bits;
}

static uint8_t prefix_from_system(const struct ifaddrs *all, const uint8_t raw[16])
{
    for (const struct ifaddrs *a = all; a; a = a->ifa_next)
        if (a->ifa_addr && a->ifa_netmask && same_address(a->ifa_addr, raw))
            return mask_bits(a->ifa_netmask);
    return 0;
}

static uint8_t type_from_sysfs(const struct pvn_hca_options *o, const struct pvn_hca *h,
                               const struct pvn_hca_port *p, int index)
{
    char text[32];
    if (!p->ethernet)
        return PVN_GID_IB;
    if (read_attr(o, text, sizeof(text), "class/infiniband/%s/ports/%u/gid_attrs/types/%d", h->name,
                  p->port, index) &&
        strstr(text, "v2"))
        return PVN_GID_ROCE_V2;
    return PVN_GID_ROCE_V1;
}

/* Reads all rows in one call if the library has it (rdma-core 31, 2020), else row by row with the types from
 * sysfs. */
static int read_rows(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                     const struct pvn_hca *h, const struct pvn_hca_port *p, int tbl_len,
                     struct pvn_gid_row *rows, int max, bool *whole)
{
    enum { ENTRIES = 1024 };
    int n = 0;
    struct pvn_verbs_gid_entry *all = v->query_gid_table ? calloc(ENTRIES, sizeof(*all)) : NULL;
    ssize_t got = all ? v->query_gid_table(h->ctx, all, ENTRIES, 0, sizeof(*all)) : -1;
    *whole = got >= 0 || !v->query_gid_table;
    for (ssize_t i = 0; i < got && n < max; i++)
        if (all[i].port_num == p->port && all[i].gid_index <= UINT8_MAX) {
            struct pvn_gid_row r = {.type = (uint8_t)all[i].gid_type,
                                    .index = (uint8_t)all[i].gid_index};
            memcpy(r.raw, all[i].gid.raw, sizeof(r.raw));
            rows[n++] = r;
        }
    free(all);
    for (int i = 0; got < 0 && i < tbl_len && i <= UINT8_MAX && n < max; i++) {
        static const uint8_t zero[16];
        union ibv_gid gid;
        if (v->query_gid(h->ctx, p->port, i, &gid)) {
            *whole = false;
            continue;
        }
        if (!memcmp(gid.raw, zero, sizeof(zero)))
            continue;
        struct pvn_gid_row r = {.type = type_from_sysfs(o, h, p, i), .index = (uint8_t)i};
        memcpy(r.raw, gid.raw, sizeof(r.raw));
        rows[n++] = r;
    }
    return n;
}

int pvn_hca_read_gids(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                      const struct pvn_hca *h, const struct pvn_hca_port *p, int tbl_len,
                      struct pvn_gid_row *rows, int max, bool *whole)
{
    struct ifaddrs *all = NULL;
    bool all_rows;
    int n = read_rows(v, o, h, p, tbl_len, rows, max, &all_rows);
    bool prefixes = o->prefix || getifaddrs(&all) == 0;
    if (!prefixes)
        all = NULL;
    if (whole)
        *whole = all_rows && prefixes;
    for (int i = 0; i < n; i++)
        rows[i].prefix = o->prefix ? o->prefix(o->prefix_arg, p->ifname, rows[i].raw)
                                   : prefix_from_system(all, rows[i].raw);
    if (all)
        freeifaddrs(all);
    return n;
}
