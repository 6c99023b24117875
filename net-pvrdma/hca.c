/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "net-pvrdma/hca.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dev_list.h"
#include "base/log.h"
#include "net-pvrdma/hca_priv.h"
#include "net-pvrdma/verbs_cmd.h"

enum {
    PVRDMA_VENDOR = 0x15ad,
    PVRDMA_DEVICE = 0x0820,
    PVRDMA_RING_CQE = 4096,
    PVRDMA_RING_WR = 2048, /* requests with four scatter elements */
    INLINE_WISH = 64,      /* bytes of a clear-to-send entry; a record has less */
    GID_ROWS = 256,        /* rows of a table that are read, because their index is a byte */
    MSG_SUSPECT = 4096     /* a smaller maximum message size is ignored */
};

#define IBTA_MAX_MSG  (UINT64_C(1) << 31)
#define PVRDMA_MAX_MR (UINT64_C(1) << 30)

/* The variable that has set the filter. */
static const char *filter_name(const struct pvn_hca_options *o)
{
    return o->hca_from ? o->hca_from : "NCCL_IB_HCA";
}

/* True if the filter may allow a port of this device. Other devices are not opened. */
static bool worth_opening(const char *filter, const char *name)
{
    return pvn_dev_list_parse(filter).exclude || pvn_dev_list_matches(filter, name, 0);
}

/* ---- numbers ---- */

int pvn_hca_speed_mbps(unsigned int speed, unsigned int width)
{
    static const struct {
        unsigned int code;
        int mbps; /* of one lane */
    } speeds[] = {{1, 2500},   {2, 5000},   {4, 10000},    {8, 10000},   {16, 14000},
                  {32, 25000}, {64, 50000}, {128, 100000}, {256, 200000}};
    static const struct {
        unsigned int code;
        int lanes;
    } widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
    int mbps = 0, lanes = 0;
    for (size_t i = 0; i < sizeof(speeds) / sizeof(*speeds); i++)
        if (speeds[i].code == speed)
            mbps = speeds[i].mbps;
    for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++)
        if (widths[i].code == width)
            lanes = widths[i].lanes;
    return mbps * lanes;
}

static uint32_t smaller(int announced, uint32_t limit)
{
    return announced > 0 && (uint32_t)announced < limit ? (uint32_t)announced : limit;
}

static uint32_t pow2_below(uint32_t n)
{
    uint32_t p = 1;
    while (p <= n / 2)
        p *= 2;
    return p;
}

static void take_limits(struct pvn_hca *h, const struct ibv_device_attr *a)
{
    int rd =
        a->max_qp_rd_atom < a->max_qp_init_rd_atom ? a->max_qp_rd_atom : a->max_qp_init_rd_atom;
    bool pv = h->kind == PVN_HCA_PVRDMA;
    h->guid = be64toh(a->node_guid);
    h->nports = a->phys_port_cnt;
    h->max_wr = smaller(a->max_qp_wr, pv ? PVRDMA_RING_WR : INT32_MAX);
    h->max_cqe = smaller(a->max_cqe, pv ? PVRDMA_RING_CQE : INT32_MAX);
    if (pv) {
        h->max_wr = pow2_below(h->max_wr);
        h->max_cqe = pow2_below(h->max_cqe);
    }
    h->max_inline = pv ? 0 : INLINE_WISH;
    h->max_mr = a->max_mr_size ? a->max_mr_size : UINT64_MAX;
    if (pv && h->max_mr > PVRDMA_MAX_MR)
        h->max_mr = PVRDMA_MAX_MR;
    h->max_rd_atomic = (uint8_t)(rd < 0 ? 0 : rd > UINT8_MAX ? UINT8_MAX : rd);
    h->costly_poll = pv;
}

/* ---- ports ---- */

static const char *state_text(enum ibv_port_state s)
{
    switch (s) {
    case IBV_PORT_DOWN:
        return "port is down";
    case IBV_PORT_INIT:
        return "port is initialising: no subnet manager has configured it";
    case IBV_PORT_ARMED:
        return "port is armed, not active";
    default:
        return "port is not active";
    }
}

/* Reads the rows of the GID table that the port may offer. False if there are none; left_out then has the
 * reason. */
static bool take_gids(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                      const struct pvn_hca *h, struct pvn_hca_port *p, int tbl_len,
                      struct pvn_hca_table *t)
{
    struct pvn_gid_row rows[GID_ROWS];
    char refused[256] = "";
    int n, kept;
    if (p->ethernet && o->gids.index >= tbl_len) {
        pvn_hca_left_out(t, p->name, "%s is outside its GID table of %d rows, 0 to %d",
                         o->gid_settings, tbl_len, tbl_len - 1);
        t->by_setting = true;
        return false;
    }
    n = kept = pvn_hca_read_gids(v, o, h, p, tbl_len, rows, GID_ROWS, NULL);
    if (p->ethernet)
        kept = pvn_gid_filter(rows, n, &o->gids, refused, sizeof(refused));
    if (kept == 0 && p->ethernet) {
        if (n == 0)
            pvn_hca_left_out(t, p->name, "its GID table is empty: give %s an address",
                             p->ifname[0] ? p->ifname : "its interface");
        else
            pvn_hca_left_out(t, p->name, "no GID fits %s: %s", o->gid_settings, refused);
        t->by_setting |= n > 0;
        return false;
    }
    p->ngids = kept < PVN_RDMA_MAX_GIDS ? kept : PVN_RDMA_MAX_GIDS;
    memcpy(p->gids, rows, (size_t)p->ngids * sizeof(*rows));
    pvn_str_append(p->why, sizeof(p->why), ", %d GID%s", p->ngids, p->ngids == 1 ? "" : "s");
    if (p->ngids < kept)
        pvn_str_append(p->why, sizeof(p->why), " of %d", kept);
    if (refused[0])
        pvn_str_append(p->why, sizeof(p->why), " (not: %s)", refused);
    return true;
}

/* Leaves out a device or a port that is not in the filter. An exclusion (^) that names it is the user's
 * intention. */
static void leave_out_unlisted(const struct pvn_hca_options *o, const char *name,
                               struct pvn_hca_table *t)
{
    bool exclude = pvn_dev_list_parse(o->hca).exclude;
    pvn_hca_left_out(t, name, "%s %s=%.48s", exclude ? "excluded by" : "not in", filter_name(o),
                     o->hca);
    t->unlisted |= !exclude;
}

/* False if the port has no row for the partition key; left_out then has the reason. */
static bool has_pkey(const struct pvn_hca_options *o, const struct pvn_hca *h,
                     const struct pvn_hca_port *p, int tbl_len, struct pvn_hca_table *t)
{
    char hex[16] = "";
    if (tbl_len == 0 || o->pkey < tbl_len) /* without a length the table is not known */
        return true;
    if (o->pkey > UINT8_MAX)
        snprintf(hex, sizeof(hex), " (0x%x)", (unsigned int)o->pkey);
    pvn_hca_left_out(t, p->name,
                     "%s%s is no row of its table of %d partition key%s: give the number of a row "
                     "in /sys/class/infiniband/%s/ports/%u/pkeys, not a key such as 0x8001",
                     o->pkey_setting, hex, tbl_len, tbl_len == 1 ? "" : "s", h->name, p->port);
    t->by_setting = true;
    return false;
}

static void take_port(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                      struct pvn_hca_table *t, const struct pvn_hca *h, int port)
{
    struct pvn_hca_port *p = &t->ports[t->nports];
    struct ibv_port_attr a;
    bool listed = pvn_dev_list_matches(o->hca, h->name, port);
    int rc;
    t->listed |= listed;
    memset(p, 0, sizeof(*p));
    p->hca = t->nhcas;
    p->port = (uint8_t)port;
    snprintf(p->name, sizeof(p->name), "%s:%d", h->name, port);
    rc = pvn_verbs_query_port(v, h->ctx, p->port, &a);
    if (rc) {
        char text[96];
        pvn_hca_left_out(t, p->name, "its state cannot be read: %s",
                         pvn_strerror(rc, text, sizeof(text)));
        return;
    }
    if (a.state != IBV_PORT_ACTIVE) {
        pvn_hca_left_out(t, p->name, "%s", state_text(a.state));
        return;
    }
    if (!listed) {
        leave_out_unlisted(o, p->name, t);
        return;
    }
    p->ethernet = a.link_layer == IBV_LINK_LAYER_ETHERNET;
    p->lid = a.lid;
    p->mtu = a.active_mtu;
    p->max_msg = a.max_msg_sz < MSG_SUSPECT ? IBTA_MAX_MSG : a.max_msg_sz;
    p->speed_mbps = pvn_hca_speed_mbps(a.active_speed, a.active_width);
    int rate = pvn_hca_read_rate(o, h, p);
    if (rate > p->speed_mbps)
        p->speed_mbps = rate;
    p->speed_known = h->kind != PVN_HCA_PVRDMA && p->speed_mbps > 0;
    if (!p->speed_known)
        p->speed_mbps = 0;
    pvn_hca_find_netdev(o, h, p);
    if (p->ethernet && !p->ifname[0]) {
        pvn_hca_left_out(t, p->name, "it has no network interface here, which RoCE needs%s",
                         h->kind == PVN_HCA_PVRDMA ? "; is vmxnet3 bound to function 0 of its slot?"
                                                   : "");
        return;
    }
    if (a.link_layer == IBV_LINK_LAYER_UNSPECIFIED) {
        pvn_hca_left_out(t, p->name, "it is neither InfiniBand nor RoCE");
        return;
    }
    if (!p->ethernet && (a.flags & IBV_QPF_GRH_REQUIRED)) {
        pvn_hca_left_out(t, p->name,
                         "its network requires a global route header in each packet (ports that "
                         "share a LID), which is not supported");
        return;
    }
    if (!p->ethernet && p->lid == 0) {
        pvn_hca_left_out(t, p->name, "it has no LID: no subnet manager has configured it");
        return;
    }
    if (!has_pkey(o, h, p, a.pkey_tbl_len, t))
        return;
    snprintf(p->why, sizeof(p->why), "%s%s%s",
             h->kind == PVN_HCA_PVRDMA ? "PVRDMA"
             : p->ethernet             ? "RoCE"
                                       : "InfiniBand",
             p->ifname[0] ? " on " : "", p->ifname);
    if (!take_gids(v, o, h, p, a.gid_tbl_len, t))
        return;
    t->nports++;
}

/* ---- adapters ---- */

static bool is_pvrdma(const struct ibv_device_attr *a, const struct pvn_hca *h, unsigned int vendor,
                      unsigned int device)
{
    return (vendor == PVRDMA_VENDOR && device == PVRDMA_DEVICE) ||
           !strcmp(h->driver, "vmw_pvrdma") ||
           (a->vendor_id == PVRDMA_VENDOR && a->vendor_part_id == PVRDMA_DEVICE);
}

/* Opens one device and adds its usable ports; closes the device again if it has none. */
static int take_device(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                       struct pvn_hca_table *t, struct ibv_device *dev)
{
    struct pvn_hca *h = &t->hcas[t->nhcas];
    struct ibv_device_attr a;
    unsigned int vendor = 0, device = 0;
    char text[96];
    int rc, before = t->nports;
    memset(h, 0, sizeof(*h));
    snprintf(h->name, sizeof(h->name), "%s", v->get_device_name(dev));
    /* An iWARP port looks like a RoCE port, but only rdma_cm can connect its queue pairs. */
    if (dev->transport_type == IBV_TRANSPORT_IWARP) {
        t->listed = true;
        pvn_hca_left_out(t, h->name, "iWARP, not RoCE; some adapters can be set to either");
        return 0;
    }
    errno = 0;
    h->ctx = v->open_device(dev);
    if (!h->ctx) {
        t->listed = true;
        pvn_hca_left_out(t, h->name, "cannot be opened: %s",
                         pvn_strerror(errno ? -errno : -EIO, text, sizeof(text)));
        return 0;
    }
    rc = v->query_device(h->ctx, &a);
    if (rc) {
        t->listed = true;
        pvn_hca_left_out(t, h->name, "does not answer: %s", pvn_strerror(rc, text, sizeof(text)));
        goto close;
    }
    pvn_hca_read_pci(o, h, &vendor, &device);
    h->kind = is_pvrdma(&a, h, vendor, device) ? PVN_HCA_PVRDMA : PVN_HCA_OTHER;
    take_limits(h, &a);
    if (h->kind == PVN_HCA_PVRDMA && pvn_verbs_cmd_is_pvrdma(h->ctx) < 0) {
        v->close_device(h->ctx);
        return -ENOMEM;
    }
    if (h->nports > 0) {
        struct pvn_hca_port *more =
            realloc(t->ports, ((size_t)t->nports + (size_t)h->nports) * sizeof(*more));
        if (!more) {
            v->close_device(h->ctx);
            return -ENOMEM;
        }
        t->ports = more;
    }
    for (int port = 1; port <= h->nports; port++)
        take_port(v, o, t, h, port);
    if (t->nports == before)
        goto close;
    h->pd = v->alloc_pd(h->ctx);
    if (!h->pd) {
        pvn_hca_left_out(t, h->name, "no protection domain: %s",
                         pvn_strerror(errno ? -errno : -ENOMEM, text, sizeof(text)));
        t->nports = before;
        goto close;
    }
    t->nhcas++;
    return 0;
close:
    v->close_device(h->ctx);
    return 0;
}

/* Lists the filter's names that no device has in `lacks`. True if another name, or an empty filter, matches a device. */
static bool find_absent(const struct pvn_verbs *v, const struct pvn_dev_list *f,
                        struct ibv_device **list, int n, char *lacks, size_t cap)
{
    const char *at = f->items, *item;
    bool matches = f->empty;
    size_t len;
    while (pvn_dev_list_next(&at, &item, &len)) {
        bool found = false;
        for (int i = 0; i < n && !found; i++)
            found = pvn_dev_list_item_matches(f, item, len, v->get_device_name(list[i]), 0);
        matches |= found;
        if (!found)
            pvn_str_append(lacks, cap, "%s\"%.*s\"", lacks[0] ? ", " : "",
                           (int)(len > 64 ? 64 : len), item);
    }
    return matches;
}

/* Checks that the filter's names exist. As in NCCL, what matches is used; names without a device are reported, or are an error
 * with every_name. No match at all is an error. unseen: the adapters that the kernel has and libibverbs lacks, with the
 * remedy. */
static int check_filter(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                        struct ibv_device **list, int n, const char *unseen, struct pvn_err *err)
{
    const char *text = o->hca ? o->hca : "", *name = filter_name(o);
    struct pvn_dev_list f = pvn_dev_list_parse(text);
    char have[256] = "", lacks[160] = "";
    bool matches = f.exclude || find_absent(v, &f, list, n, lacks, sizeof(lacks));
    if (!lacks[0])
        return 0;
    for (int i = 0; i < n; i++)
        pvn_str_append(have, sizeof(have), "%s%s", i ? ", " : "", v->get_device_name(list[i]));
    if (matches && !o->every_name) {
        pvn_warn("%s=%.200s: no RDMA device is called %s; there are: %s; the rest of the list is "
                 "used; correct the list, unless it is one for hosts of several kinds",
                 name, text, lacks, have);
        return 0;
    }
    if (matches)
        pvn_err_set(err, -ENODEV,
                    "%s=%.80s: no RDMA device is called %s, and NCCL_PVRDMA_STRICT is set; there "
                    "are: %s",
                    name, text, lacks, have);
    else if (n > 0)
        pvn_err_set(err, -ENODEV,
                    "%s=%.80s names no RDMA device of this host, so RDMA is not used; there are: "
                    "%s; correct it, or unset it to take all",
                    name, text, have);
    else
        pvn_err_set(err, -ENODEV,
                    "%s=%.80s names no RDMA device of this host, so RDMA is not used; there is "
                    "none%s%s",
                    name, text, unseen[0] ? ": " : "", unseen);
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return -ENODEV;
}

int pvn_hca_scan(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                 struct pvn_hca_table *out, struct pvn_err *err)
{
    int n = 0, rc = 0;
    memset(out, 0, sizeof(*out));
    errno = 0;
    struct ibv_device **list = v->get_device_list(&n);
    int why = errno;
    if (list || why == ENOSYS || why == ENODEV)
        pvn_hca_name_missing(v, o, list, list ? n : 0, out);
    errno = why;
    /* A kernel without RDMA is no error. */
    if (!list && errno != ENOSYS && errno != ENODEV)
        return pvn_err_set(err, errno ? -errno : -EIO, "libibverbs cannot list the RDMA devices");
    n = list ? n : 0;
    pvn_dev_list_warn(filter_name(o), o->hca ? o->hca : "");
    rc = check_filter(v, o, list, n, out->left_out, err);
    if (rc && n == 0 && !out->left_out[0] && o->may_lack_rdma) {
        pvn_str_append(out->left_out, sizeof(out->left_out), "%s", err->reason[0]);
        pvn_err_clear(err);
        rc = 0;
    }
    if (rc == 0 && n > 0) {
        out->hcas = calloc((size_t)n, sizeof(*out->hcas));
        rc = out->hcas ? 0 : pvn_err_set(err, -ENOMEM, "no memory for %d RDMA devices", n);
    }
    for (int i = 0; rc == 0 && i < n; i++) {
        if (!worth_opening(o->hca, v->get_device_name(list[i]))) {
            leave_out_unlisted(o, v->get_device_name(list[i]), out);
            continue;
        }
        rc = take_device(v, o, out, list[i]);
        if (rc)
            pvn_err_set(err, rc, "no memory for the ports of %s", v->get_device_name(list[i]));
    }
    out->by_setting |= out->unlisted && !out->listed;
    if (list)
        v->free_device_list(list);
    if (rc)
        pvn_hca_close(v, out);
    return rc;
}

/* Fills in a table of the one device with this name; the table is empty if the device is not usable now. */
static int scan_one(const struct pvn_verbs *v, const struct pvn_hca_options *o, const char *name,
                    struct pvn_hca_table *out)
{
    int n = 0, rc = 0;
    memset(out, 0, sizeof(*out));
    out->hcas = calloc(1, sizeof(*out->hcas));
    if (!out->hcas)
        return -ENOMEM;
    struct ibv_device **list = v->get_device_list(&n);
    for (int i = 0; list && i < n && out->nhcas == 0; i++)
        if (strcmp(v->get_device_name(list[i]), name) == 0)
            rc = take_device(v, o, out, list[i]);
    if (list)
        v->free_device_list(list);
    return rc;
}

int pvn_hca_scan_again(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                       const struct pvn_hca *h, struct pvn_hca_table *out, struct pvn_err *err)
{
    int rc = scan_one(v, o, h->name, out);
    if (rc < 0)
        pvn_err_set(err, rc, "no memory to open %s again", h->name);
    else if (out->nhcas == 0)
        rc = pvn_err_set(err, -ENODEV, "%s cannot be opened again: %s", h->name,
                         out->left_out[0] ? out->left_out : "there is no such device now");
    else if (out->hcas[0].guid != h->guid)
        rc = pvn_err_set(err, -ENODEV, "%s is another device now, of node GUID %016llx", h->name,
                         (unsigned long long)out->hcas[0].guid);
    if (rc < 0)
        pvn_hca_close(v, out);
    return rc;
}

void pvn_hca_take_over(struct pvn_hca_table *t, int hca, struct pvn_hca_table *again)
{
    struct pvn_hca *h = &t->hcas[hca];
    bool no_write = h->no_write, no_loop = h->no_loop;
    *h = again->hcas[0];
    h->no_write = no_write;
    h->no_loop = no_loop;
    again->hcas[0].ctx = NULL;
    for (int i = 0; i < t->nports; i++)
        for (int k = 0; k < again->nports; k++)
            if (t->ports[i].hca == hca && t->ports[i].port == again->ports[k].port) {
                again->ports[k].hca = hca;
                t->ports[i] = again->ports[k];
            }
}

void pvn_hca_close(const struct pvn_verbs *v, struct pvn_hca_table *t)
{
    for (int i = 0; i < t->nhcas; i++) {
        if (!t->hcas[i].ctx)
            continue;
        v->dealloc_pd(t->hcas[i].pd);
        v->close_device(t->hcas[i].ctx);
    }
    free(t->hcas);
    free(t->ports);
    memset(t, 0, sizeof(*t));
}

int pvn_hca_current_port(const struct pvn_verbs *v, const struct pvn_hca *h, struct pvn_hca_port *p)
{
    struct ibv_port_attr a;
    int rc = pvn_verbs_query_port(v, h->ctx, p->port, &a);

    if (rc < 0)
        return rc;
    p->lid = a.lid;
    p->mtu = a.active_mtu;
    return a.gid_tbl_len;
}

int pvn_hca_current_gids(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                         const struct pvn_hca *h, struct pvn_hca_port *p, struct pvn_gid_row *rows,
                         int max, bool *whole)
{
    struct pvn_gid_row all[GID_ROWS];
    int rc = pvn_hca_current_port(v, h, p);

    if (rc < 0)
        return rc;
    /* All rows are read, because allowed rows may come after more than `max` forbidden ones. */
    rc = pvn_hca_read_gids(v, o, h, p, rc, all, GID_ROWS, whole);
    if (rc < 0)
        return rc;
    int kept = pvn_gid_filter(all, rc, &o->gids, NULL, 0);
    if (kept > max)
        kept = max;
    memcpy(rows, all, (size_t)kept * sizeof(*rows));
    return kept;
}
