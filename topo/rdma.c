/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* RDMA devices, their ports and GID tables, from /sys/class/infiniband. */
#include "topo/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char class_dir[] = "/sys/class/infiniband";

/* "4: ACTIVE": the number, and the word into text. */
static int read_numbered(struct pvn_topo_reader *r, const char *dir, const char *name, char *text,
                         size_t cap)
{
    char line[PVN_TOPO_NAME_MAX];
    int value = 0, used = 0;

    text[0] = '\0';
    if (!pvn_topo_read_text(r, dir, name, line, sizeof(line)))
        return PVN_TOPO_UNKNOWN;
    if (sscanf(line, "%3d: %n", &value, &used) != 1 || used == 0) {
        char where[PVN_TOPO_FS_PATH_MAX];

        snprintf(where, sizeof(where), "%.150s/%s", dir, name);
        pvn_topo_leave_note(r, where, "\"%s\" is no state; taken as unknown", line);
        return PVN_TOPO_UNKNOWN;
    }
    pvn_topo_copy_text(text, cap, line + used);
    return value;
}

/* "100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)". */
static int parse_rate(const char *text)
{
    char *end;
    double gbps = strtod(text, &end);

    /* The comparison is also false for a nan from strtod. */
    if (end == text || strncmp(end, " Gb/sec", 7) != 0 || !(gbps > 0 && gbps < 1e6))
        return PVN_TOPO_UNKNOWN;
    return (int)(gbps * 1000 + 0.5);
}

/* "fe80:0000:0000:0000:0202:c9ff:fe00:0001" into 16 bytes. */
static bool parse_gid(const char *text, uint8_t raw[16])
{
    for (int i = 0; i < 8; i++) {
        unsigned word;
        int used = 0;

        if (sscanf(text, "%4x%n", &word, &used) != 1 || used != 4 ||
            text[4] != (i == 7 ? '\0' : ':'))
            return false;
        raw[2 * i] = (uint8_t)(word >> 8);
        raw[2 * i + 1] = (uint8_t)word;
        text += 5;
    }
    return true;
}

static enum pvn_topo_gid_type parse_gid_type(const char *text, enum pvn_topo_link_layer layer)
{
    if (strcmp(text, "RoCE v2") == 0)
        return PVN_TOPO_GID_ROCE_V2;
    if (strcmp(text, "IB/RoCE v1") == 0) {
        return layer == PVN_TOPO_LINK_INFINIBAND ? PVN_TOPO_GID_IB
               : layer == PVN_TOPO_LINK_ETHERNET ? PVN_TOPO_GID_ROCE_V1
                                                 : PVN_TOPO_GID_UNKNOWN;
    }
    return PVN_TOPO_GID_UNKNOWN;
}

/* The real paths of a port's three GID directories; "" for a missing one. */
struct gid_dirs {
    char gids[PVN_TOPO_FS_PATH_MAX], types[PVN_TOPO_FS_PATH_MAX], ndevs[PVN_TOPO_FS_PATH_MAX];
};

static int read_gid(struct pvn_topo_reader *r, const struct gid_dirs *dirs, int index,
                    struct pvn_topo_rdma_port *port)
{
    static const uint8_t zero[16];
    char name[PVN_TOPO_NAME_MAX], text[PVN_TOPO_NAME_MAX];
    uint8_t raw[16];
    struct pvn_topo_gid *gid;

    snprintf(name, sizeof(name), "%d", index);
    if (!pvn_topo_read_text(r, dirs->gids, name, text, sizeof(text)))
        return 0;
    if (!parse_gid(text, raw)) {
        char where[PVN_TOPO_FS_PATH_MAX];

        snprintf(where, sizeof(where), "%.150s/%s", dirs->gids, name);
        pvn_topo_leave_note(r, where, "\"%s\" is no GID; passed over", text);
        return 0;
    }
    if (memcmp(raw, zero, sizeof(raw)) == 0)
        return 0;
    gid = pvn_topo_array_add((void **)&port->gids, &port->ngids, sizeof(*gid));
    if (!gid)
        return pvn_topo_reader_nomem(r);
    gid->index = index;
    memcpy(gid->raw, raw, sizeof(raw));
    if (dirs->types[0] != '\0' && pvn_topo_read_text(r, dirs->types, name, text, sizeof(text)))
        gid->type = parse_gid_type(text, port->layer);
    if (dirs->ndevs[0] != '\0')
        pvn_topo_read_text(r, dirs->ndevs, name, gid->ndev, sizeof(gid->ndev));
    return 0;
}

/* Lists the directory entries that are numbers in [min, max], ascending. The caller frees
 * *numbers. */
static int list_numbers(struct pvn_topo_reader *r, const char *path, int min, int max,
                        int **numbers, int *n)
{
    struct pvn_topo_fs_names names;
    int rc = pvn_topo_fs_list(r->fs, path, &names);

    *numbers = NULL;
    *n = 0;
    if (rc == -ENOMEM)
        return pvn_topo_reader_nomem(r);
    if (rc == -E2BIG)
        return pvn_topo_reader_too_many(r, "ports or GIDs", PVN_TOPO_FS_MAX_NAMES);
    for (int i = 0; rc == 0 && i < names.n; i++) {
        int value, *slot;

        if (!pvn_topo_parse_int(names.name[i], 10, min, max, &value)) {
            pvn_topo_leave_note(r, path, "\"%.100s\" is no number from %d to %d; passed over",
                                names.name[i], min, max);
            continue;
        }
        slot = pvn_topo_array_add((void **)numbers, n, sizeof(*slot));
        if (!slot) {
            pvn_topo_fs_names_free(&names);
            return pvn_topo_reader_nomem(r);
        }
        *slot = value;
    }
    pvn_topo_fs_names_free(&names);
    if (*n > 1)
        qsort(*numbers, (size_t)*n, sizeof(**numbers), pvn_topo_by_number);
    return 0;
}

static int read_gids(struct pvn_topo_reader *r, const char *dir, struct pvn_topo_rdma_port *port)
{
    struct gid_dirs dirs;
    int *index, n, rc;

    if ((r->flags & PVN_TOPO_NO_GIDS) != 0 || !pvn_topo_real_below(r, dir, "gids", dirs.gids))
        return 0;
    pvn_topo_real_below(r, dir, "gid_attrs/types", dirs.types);
    pvn_topo_real_below(r, dir, "gid_attrs/ndevs", dirs.ndevs);
    if ((r->flags & PVN_TOPO_FIRST_GID) != 0)
        return read_gid(r, &dirs, 0, port);
    rc = list_numbers(r, dirs.gids, 0, PVN_TOPO_MAX_GIDS - 1, &index, &n);
    for (int i = 0; rc == 0 && i < n; i++) {
        rc = read_gid(r, &dirs, index[i], port);
        port->gid_table_len = index[i] + 1;
    }
    free(index);
    return rc;
}

static int read_port(struct pvn_topo_reader *r, const char *dir, struct pvn_topo_rdma_port *port)
{
    char text[PVN_TOPO_NAME_MAX], lid[PVN_TOPO_NAME_MAX];

    port->netdev = -1;
    port->active_mtu = PVN_TOPO_UNKNOWN;
    port->state = read_numbered(r, dir, "state", port->state_text, sizeof(port->state_text));
    read_numbered(r, dir, "phys_state", port->phys_state_text, sizeof(port->phys_state_text));
    pvn_topo_read_text(r, dir, "rate", port->rate_text, sizeof(port->rate_text));
    port->rate_mbps = parse_rate(port->rate_text);
    port->lid = PVN_TOPO_UNKNOWN;
    if (pvn_topo_read_text(r, dir, "lid", lid, sizeof(lid)))
        pvn_topo_parse_int(lid, 16, 0, 0xffff, &port->lid);
    if (pvn_topo_read_text(r, dir, "link_layer", text, sizeof(text))) {
        port->layer = strcmp(text, "Ethernet") == 0     ? PVN_TOPO_LINK_ETHERNET
                      : strcmp(text, "InfiniBand") == 0 ? PVN_TOPO_LINK_INFINIBAND
                                                        : PVN_TOPO_LINK_UNKNOWN;
    }
    return read_gids(r, dir, port);
}

static int read_ports(struct pvn_topo_reader *r, const char *dir, struct pvn_topo_rdma *dev)
{
    char ports[PVN_TOPO_FS_PATH_MAX], path[PVN_TOPO_FS_PATH_MAX], name[16];
    int *num, n, rc;

    if (!pvn_topo_real_below(r, dir, "ports", ports)) {
        pvn_topo_leave_note(r, dir, "has no directory \"ports\": its ports are unknown");
        return 0;
    }
    rc = list_numbers(r, ports, 1, PVN_TOPO_MAX_RDMA_PORTS, &num, &n);
    for (int i = 0; rc == 0 && i < n; i++) {
        struct pvn_topo_rdma_port *port;

        snprintf(name, sizeof(name), "%d", num[i]);
        if (!pvn_topo_real_below(r, ports, name, path)) {
            pvn_topo_leave_note(r, ports, "port %d is no directory; passed over", num[i]);
            continue;
        }
        port = pvn_topo_array_add((void **)&dev->ports, &dev->nports, sizeof(*port));
        if (!port) {
            rc = pvn_topo_reader_nomem(r);
            break;
        }
        port->num = num[i];
        rc = read_port(r, path, port);
    }
    free(num);
    return rc;
}

/* The interface that shares the port's wire: the one that the kernel names beside the GIDs, else
 * the one of the same function and port number, or the parent of a Soft-RoCE device. */
static int netdev_of_port(struct pvn_topo_reader *r, const char *dir,
                          const struct pvn_topo_rdma *dev, const struct pvn_topo_rdma_port *port)
{
    const struct pvn_topo *t = r->topo;
    char parent[PVN_TOPO_NAME_MAX];
    int found = -1, on_function = 0;

    for (int i = 0; i < port->ngids; i++) {
        found = port->gids[i].ndev[0] != '\0' ? pvn_topo_find_net(t, port->gids[i].ndev) : -1;
        /* A VLAN or bond has GIDs of its own. The port's interface is the one of the device's
         * function, or of the port's own one of the same card. In a container the name may be of an interface of the host, and the container
         * may have another one of that name. PVRDMA's is in pvn_topo_pair_pvrdma. */
        if (found >= 0 && t->nets[found].pci >= 0 &&
            (dev->kind == PVN_TOPO_RDMA_SOFT || t->nets[found].pci == dev->pci ||
             (dev->nports > 1 &&
              pvn_topo_same_slot(&t->pci[t->nets[found].pci], &t->pci[dev->pci]))))
            return found;
    }
    if (dev->kind == PVN_TOPO_RDMA_SOFT) {
        return pvn_topo_read_text(r, dir, "parent", parent, sizeof(parent))
                   ? pvn_topo_find_net(t, parent)
                   : found;
    }
    found = -1;
    for (int i = 0; dev->pci >= 0 && i < t->nnets; i++) {
        const struct pvn_topo_net *net = &t->nets[i];

        if (net->pci != dev->pci)
            continue;
        on_function++;
        if (net->dev_port == port->num - 1 || (dev->nports == 1 && found < 0))
            found = i;
    }
    return on_function > 0 ? found : -1;
}

static enum pvn_topo_rdma_kind kind_of(const struct pvn_topo *t, const struct pvn_topo_rdma *dev)
{
    if (dev->pci < 0)
        return PVN_TOPO_RDMA_SOFT;
    if (t->pci[dev->pci].vendor == 0x15ad && t->pci[dev->pci].device == 0x0820)
        return PVN_TOPO_RDMA_PVRDMA;
    return PVN_TOPO_RDMA_HW;
}

static int read_rdma(struct pvn_topo_reader *r, const char *dir, struct pvn_topo_rdma *dev)
{
    char real[PVN_TOPO_FS_PATH_MAX], type[PVN_TOPO_NAME_MAX];
    const char *word;
    int rc;

    if (pvn_topo_real_below(r, dir, "device", real)) {
        dev->pci = pvn_topo_pci_of_path(r->topo, real);
        pvn_topo_read_link_name(r, real, "driver", dev->driver, sizeof(dev->driver));
    } else {
        dev->pci = pvn_topo_pci_of_path(r->topo, dir);
    }
    dev->kind = kind_of(r->topo, dev);
    pvn_topo_read_text(r, dir, "fw_ver", dev->fw_ver, sizeof(dev->fw_ver));
    pvn_topo_read_text(r, dir, "hca_type", dev->hca_type, sizeof(dev->hca_type));
    pvn_topo_read_text(r, dir, "board_id", dev->board_id, sizeof(dev->board_id));
    pvn_topo_read_text(r, dir, "node_guid", dev->node_guid, sizeof(dev->node_guid));
    pvn_topo_read_text(r, dir, "sys_image_guid", dev->sys_image_guid, sizeof(dev->sys_image_guid));
    if (pvn_topo_read_text(r, dir, "node_type", type, sizeof(type))) {
        word = strstr(type, ": ");
        pvn_topo_copy_text(dev->node_type, sizeof(dev->node_type), word ? word + 2 : type);
    }
    rc = read_ports(r, dir, dev);
    for (int i = 0; rc == 0 && i < dev->nports; i++)
        dev->ports[i].netdev = netdev_of_port(r, dir, dev, &dev->ports[i]);
    return rc;
}

static int add_rdma(struct pvn_topo_reader *r, const char *name)
{
    char path[PVN_TOPO_FS_PATH_MAX], dir[PVN_TOPO_FS_PATH_MAX];
    struct pvn_topo_rdma *dev;
    int rc;

    if (strlen(name) >= PVN_TOPO_NAME_MAX) {
        pvn_topo_leave_note(r, class_dir, "\"%.100s\" is too long for a device; passed over", name);
        return 0;
    }
    snprintf(path, sizeof(path), "%s/%s", class_dir, name);
    rc = pvn_topo_fs_resolve(r->fs, path, dir);
    if (rc != 0) {
        r->topo->unread |= PVN_TOPO_UNREAD_RDMAS;
        pvn_topo_leave_note(r, path, "link cannot be followed: %s", strerror(-rc));
        return 0;
    }
    if (r->topo->nrdmas == PVN_TOPO_MAX_RDMAS)
        return pvn_topo_reader_too_many(r, "RDMA devices", PVN_TOPO_MAX_RDMAS);
    dev = pvn_topo_array_add((void **)&r->topo->rdmas, &r->topo->nrdmas, sizeof(*dev));
    if (!dev)
        return pvn_topo_reader_nomem(r);
    pvn_topo_copy_text(dev->name, sizeof(dev->name), name);
    pvn_topo_clean_text(dev->name);
    return read_rdma(r, dir, dev);
}

/* True if the machine may have RDMA devices although the directory cannot be listed. The directory
 * exists once RDMA's core is loaded; without it there is no RDMA device, unless the directory above
 * is missing, too, or a function shows one. */
static bool may_have_devices(struct pvn_topo_reader *r, int rc)
{
    char real[PVN_TOPO_FS_PATH_MAX];

    if (rc != -ENOENT || pvn_topo_fs_type(r->fs, "/sys/class") != PVN_TOPO_FS_DIR ||
        pvn_topo_find_module(r->topo, "ib_core") >= 0)
        return true;
    for (int i = 0; i < r->topo->npci; i++) {
        const struct pvn_topo_pci *p = &r->topo->pci[i];

        if (p->path && p->class_code >> 16 == 0x02 &&
            pvn_topo_real_below(r, p->path, "infiniband", real))
            return true;
    }
    return false;
}

int pvn_topo_read_rdmas(struct pvn_topo_reader *r)
{
    struct pvn_topo_fs_names names;
    int rc = pvn_topo_fs_list(r->fs, class_dir, &names);

    if (rc == -ENOMEM)
        return pvn_topo_reader_nomem(r);
    if (rc == -E2BIG)
        return pvn_topo_reader_too_many(r, "RDMA devices", PVN_TOPO_MAX_RDMAS);
    if (rc != 0) {
        if (may_have_devices(r, rc)) {
            pvn_topo_leave_unread(r, PVN_TOPO_UNREAD_RDMAS, class_dir, rc,
                                  "no RDMA device is known");
        }
        return 0;
    }
    for (int i = 0; rc == 0 && i < names.n; i++)
        rc = add_rdma(r, names.name[i]);
    pvn_topo_fs_names_free(&names);
    return rc;
}

/* Describes why the pair does not work; "" if it is complete. */
static void describe_pair(const struct pvn_topo *t, struct pvn_topo_pvrdma_pair *pair)
{
    const struct pvn_topo_pci *p = &t->pci[pair->pci];

    if (p->fn == 0) {
        snprintf(pair->problem, sizeof(pair->problem),
                 "PVRDMA function %s is function 0 of its slot; vmw_pvrdma needs its vmxnet3 there",
                 p->bdf);
    } else if (pair->vmxnet3 < 0) {
        snprintf(
            pair->problem, sizeof(pair->problem),
            "PVRDMA function %s has no vmxnet3 (15ad:07b0) as function 0 of its slot; vmw_pvrdma "
            "does not start without it",
            p->bdf);
    } else if (pair->netdev < 0) {
        snprintf(pair->problem, sizeof(pair->problem),
                 "vmxnet3 %s beside PVRDMA function %s has no interface (driver %s)",
                 t->pci[pair->vmxnet3].bdf, p->bdf,
                 t->pci[pair->vmxnet3].driver[0] != '\0' ? t->pci[pair->vmxnet3].driver
                                                         : "not bound");
    } else if (pair->rdma < 0) {
        snprintf(pair->problem, sizeof(pair->problem),
                 "PVRDMA function %s has its vmxnet3 (%s) but no RDMA device (driver %s)", p->bdf,
                 t->nets[pair->netdev].name, p->driver[0] != '\0' ? p->driver : "not bound");
    }
}

int pvn_topo_pair_pvrdma(struct pvn_topo_reader *r)
{
    struct pvn_topo *t = r->topo;

    for (int i = 0; i < t->npci; i++) {
        const struct pvn_topo_pci *p = &t->pci[i];
        struct pvn_topo_pvrdma_pair *pair;
        int zero;

        if (p->vendor != 0x15ad || p->device != 0x0820)
            continue;
        pair = pvn_topo_array_add((void **)&t->pvrdma, &t->npvrdma, sizeof(*pair));
        if (!pair)
            return pvn_topo_reader_nomem(r);
        zero = p->fn != 0 ? pvn_topo_pci_index(t, p->domain, p->bus, p->dev, 0) : -1;
        if (zero >= 0 && (t->pci[zero].vendor != 0x15ad || t->pci[zero].device != 0x07b0))
            zero = -1;
        pair->pci = i;
        pair->vmxnet3 = zero;
        pair->netdev = pvn_topo_net_of_pci(t, zero);
        pair->rdma = pvn_topo_rdma_of_pci(t, i);
        describe_pair(t, pair);
        for (int k = 0; pair->rdma >= 0 && k < t->rdmas[pair->rdma].nports; k++) {
            struct pvn_topo_rdma_port *port = &t->rdmas[pair->rdma].ports[k];

            port->netdev = port->netdev >= 0 ? port->netdev : pair->netdev;
        }
    }
    return 0;
}
