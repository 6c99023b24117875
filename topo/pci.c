/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* PCI functions and the tree they form, from /sys/bus/pci/devices.
 *
 * The place of a function is its real path: /sys/devices/pci0000:17/0000:17:00.0/0000:18:00.0.
 * Every component that is an address is a function, whether or not it has an entry of its own. */
#include "topo/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char bus_dir[] = "/sys/bus/pci/devices";
static const char switch_dir[] = "/sys/kernel/pci_switch_link/virtual_switch_links";

struct addr {
    uint32_t domain;
    uint8_t bus, dev, fn;
};

/* The functions that have an entry, with their real path (NULL if the link did not resolve). */
struct listing {
    struct pvn_topo_fs_names names;
    char **real;
};

static int compare_addr(uint32_t da, uint32_t ba, uint32_t db, uint32_t bb)
{
    if (da != db)
        return da < db ? -1 : 1;
    return ba < bb ? -1 : ba > bb;
}

static uint32_t bus_key(unsigned bus, unsigned dev, unsigned fn)
{
    return bus << 8 | dev << 3 | fn;
}

static int by_addr(const void *x, const void *y)
{
    const struct addr *a = x, *b = y;

    return compare_addr(a->domain, bus_key(a->bus, a->dev, a->fn), b->domain,
                        bus_key(b->bus, b->dev, b->fn));
}

int pvn_topo_pci_index(const struct pvn_topo *topo, uint32_t domain, int bus, int dev, int fn)
{
    int lo = 0, hi = topo->npci;
    uint32_t key = bus_key((unsigned)bus, (unsigned)dev, (unsigned)fn);

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        const struct pvn_topo_pci *p = &topo->pci[mid];
        int c = compare_addr(p->domain, bus_key(p->bus, p->dev, p->fn), domain, key);

        if (c == 0)
            return mid;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

/* Reads the component at *at of a path ("/x/y") into part and moves on. false at the end. */
static bool next_component(const char **at, char *part, size_t cap)
{
    const char *s = *at;
    size_t n;

    while (*s == '/')
        s++;
    n = strcspn(s, "/");
    if (n == 0)
        return false;
    *at = s + n;
    if (n >= cap)
        n = 0; /* too long for an address or a root bus: no name that matters */
    memcpy(part, s, n);
    part[n] = '\0';
    return true;
}

/* sysfs writes the domain with at least four digits. */
static bool parse_component(const char *part, struct addr *a)
{
    return strcspn(part, ":") >= 4 && strchr(part, ':') &&
           pvn_topo_bdf_parse(part, &a->domain, &a->bus, &a->dev, &a->fn) == 0;
}

/* "pci0000:17" (or, for VMD, "pci10000:00"). */
static bool parse_root(const char *part, uint32_t *domain, uint8_t *bus)
{
    char bdf[PVN_TOPO_NAME_MAX + 8];
    uint8_t dev, fn;

    if (strncmp(part, "pci", 3) != 0 || strlen(part) > 3 + 8 + 3 || strcspn(part + 3, ":") < 4)
        return false;
    snprintf(bdf, sizeof(bdf), "%s:00.0", part + 3);
    return pvn_topo_bdf_parse(bdf, domain, bus, &dev, &fn) == 0;
}

int pvn_topo_pci_of_path(const struct pvn_topo *topo, const char *real)
{
    char part[PVN_TOPO_NAME_MAX];
    int found = -1;
    struct addr a;

    while (next_component(&real, part, sizeof(part))) {
        if (parse_component(part, &a)) {
            int i = pvn_topo_pci_index(topo, a.domain, a.bus, a.dev, a.fn);

            found = i >= 0 ? i : found;
        }
    }
    return found;
}

/* Finds the real path of an entry; NULL, with a note, if it is no place in the tree. */
static int resolve_entry(struct pvn_topo_reader *r, const char *name, char **real)
{
    char path[PVN_TOPO_FS_PATH_MAX], out[PVN_TOPO_FS_PATH_MAX];
    const char *last;
    int rc;

    *real = NULL;
    snprintf(path, sizeof(path), "%s/%s", bus_dir, name);
    rc = pvn_topo_fs_resolve(r->fs, path, out);
    if (rc != 0) {
        pvn_topo_leave_note(r, path,
                            "link cannot be followed: %s; its place in the tree is unknown",
                            strerror(-rc));
        return 0;
    }
    last = strrchr(out, '/');
    if (strcmp(last + 1, name) != 0) {
        pvn_topo_leave_note(r, path,
                            "leads to %.150s, another name; its place in the tree is unknown", out);
        return 0;
    }
    *real = strdup(out);
    return !*real ? pvn_topo_reader_nomem(r) : 0;
}

static int list_functions(struct pvn_topo_reader *r, struct listing *l)
{
    int rc = pvn_topo_fs_list(r->fs, bus_dir, &l->names);
    int kept = 0;

    if (rc == -E2BIG) {
        return pvn_topo_reader_too_many(r, "entries in /sys/bus/pci/devices",
                                        PVN_TOPO_FS_MAX_NAMES);
    }
    if (rc == -ENOMEM)
        return pvn_topo_reader_nomem(r);
    if (rc != 0) {
        pvn_topo_leave_unread(r, PVN_TOPO_UNREAD_PCI, bus_dir, rc, "no PCI function is known");
        return 0;
    }
    for (int i = 0; i < l->names.n; i++) {
        struct addr a;

        if (parse_component(l->names.name[i], &a)) {
            char *keep = l->names.name[i];

            l->names.name[i] = l->names.name[kept];
            l->names.name[kept++] = keep;
        } else {
            pvn_topo_leave_note(r, bus_dir, "\"%.100s\" is no PCI address; passed over",
                                l->names.name[i]);
        }
    }
    for (int i = kept; i < l->names.n; i++)
        free(l->names.name[i]);
    l->names.n = kept;
    if (kept > PVN_TOPO_MAX_PCI)
        return pvn_topo_reader_too_many(r, "PCI functions", PVN_TOPO_MAX_PCI);
    l->real = calloc((size_t)kept + 1, sizeof(*l->real));
    if (!l->real)
        return pvn_topo_reader_nomem(r);
    for (int i = 0; i < kept; i++) {
        rc = resolve_entry(r, l->names.name[i], &l->real[i]);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Collects every address that has an entry or is on the path of one. */
static int collect_addrs(struct pvn_topo_reader *r, const struct listing *l, struct addr **addrs,
                         int *n)
{
    for (int i = 0; i < l->names.n; i++) {
        const char *at = l->real[i] ? l->real[i] : l->names.name[i];
        char part[PVN_TOPO_NAME_MAX];
        struct addr a, *slot;

        while (next_component(&at, part, sizeof(part))) {
            if (!parse_component(part, &a))
                continue;
            slot = pvn_topo_array_add((void **)addrs, n, sizeof(**addrs));
            if (!slot)
                return pvn_topo_reader_nomem(r);
            *slot = a;
            if (*n > 64 * PVN_TOPO_MAX_PCI)
                return pvn_topo_reader_too_many(r, "PCI path components", 64 * PVN_TOPO_MAX_PCI);
        }
    }
    return 0;
}

void pvn_topo_pci_clear(struct pvn_topo_pci *p, uint32_t domain, int bus, int dev, int fn)
{
    *p = (struct pvn_topo_pci){
        .domain = domain,
        .bus = (uint8_t)bus,
        .dev = (uint8_t)dev,
        .fn = (uint8_t)fn,
        .parent = -1,
        .seen_parent = -1,
        .root = -1,
        .class_code = PVN_TOPO_UNKNOWN,
        .vendor = PVN_TOPO_UNKNOWN,
        .device = PVN_TOPO_UNKNOWN,
        .subvendor = PVN_TOPO_UNKNOWN,
        .subdevice = PVN_TOPO_UNKNOWN,
        .revision = PVN_TOPO_UNKNOWN,
        .numa = PVN_TOPO_UNKNOWN,
        .iommu_group = PVN_TOPO_UNKNOWN,
        .link = {PVN_TOPO_UNKNOWN, PVN_TOPO_UNKNOWN, PVN_TOPO_UNKNOWN, PVN_TOPO_UNKNOWN, "", "",
                 PVN_TOPO_UNKNOWN},
        .config = {.lnk_speed_mts = PVN_TOPO_UNKNOWN, .lnk_width = PVN_TOPO_UNKNOWN},
        .physfn = -1,
        .num_vfs = PVN_TOPO_UNKNOWN,
        .total_vfs = PVN_TOPO_UNKNOWN,
        .secondary = PVN_TOPO_UNKNOWN,
        .subordinate = PVN_TOPO_UNKNOWN,
    };
    pvn_topo_bdf_format(p->bdf, domain, (unsigned)bus, (unsigned)dev, (unsigned)fn);
}

/* Sorts the addresses and drops repeats. Returns how many are left. */
static int sort_unique(struct addr *addrs, int n)
{
    int kept = 0;

    qsort(addrs, (size_t)n, sizeof(*addrs), by_addr);
    for (int i = 0; i < n; i++)
        if (kept == 0 || by_addr(&addrs[kept - 1], &addrs[i]) != 0)
            addrs[kept++] = addrs[i];
    return kept;
}

static int make_functions(struct pvn_topo_reader *r, const struct listing *l)
{
    struct pvn_topo *t = r->topo;
    struct addr *addrs = NULL;
    int n = 0, rc = collect_addrs(r, l, &addrs, &n);

    if (rc != 0 || n == 0)
        goto out;
    n = sort_unique(addrs, n);
    if (n > PVN_TOPO_MAX_PCI) {
        rc = pvn_topo_reader_too_many(r, "PCI functions", PVN_TOPO_MAX_PCI);
        goto out;
    }
    t->pci = malloc((size_t)n * sizeof(*t->pci));
    if (!t->pci) {
        rc = pvn_topo_reader_nomem(r);
        goto out;
    }
    for (t->npci = 0; t->npci < n; t->npci++) {
        const struct addr *a = &addrs[t->npci];

        pvn_topo_pci_clear(&t->pci[t->npci], a->domain, a->bus, a->dev, a->fn);
        t->pci[t->npci].flags = PVN_TOPO_PCI_GAP | PVN_TOPO_PCI_NO_PATH;
    }
out:
    free(addrs);
    return rc;
}

static int root_index(struct pvn_topo_reader *r, const char *name, uint32_t domain, uint8_t bus,
                      int via)
{
    struct pvn_topo *t = r->topo;
    struct pvn_topo_root *root;

    for (int i = 0; i < t->nroots; i++)
        if (t->roots[i].domain == domain && t->roots[i].bus == bus)
            return i;
    if (t->nroots == PVN_TOPO_MAX_ROOTS)
        return pvn_topo_reader_too_many(r, "PCI root buses", PVN_TOPO_MAX_ROOTS);
    root = pvn_topo_array_add((void **)&t->roots, &t->nroots, sizeof(*root));
    if (!root)
        return pvn_topo_reader_nomem(r);
    pvn_topo_copy_text(root->name, sizeof(root->name), name);
    root->domain = domain;
    root->bus = bus;
    root->via = via;
    root->numa = PVN_TOPO_UNKNOWN;
    return t->nroots - 1;
}

/* Gives every function on the path its parent. The first path that names a function decides. All
 * functions before it on that path have their parents already, so the parents cannot form a
 * loop. */
static int place_path(struct pvn_topo_reader *r, const char *real)
{
    struct pvn_topo *t = r->topo;
    int parent = -1, root = -1, last = -1;
    const char *at = real;
    char part[PVN_TOPO_NAME_MAX];

    while (next_component(&at, part, sizeof(part))) {
        struct pvn_topo_pci *p;
        uint32_t domain;
        uint8_t bus;
        struct addr a;

        if (parse_root(part, &domain, &bus)) {
            root = root_index(r, part, domain, bus, parent >= 0 ? parent : last);
            if (root < 0)
                return root;
            parent = -1;
            continue;
        }
        if (!parse_component(part, &a))
            continue;
        last = pvn_topo_pci_index(t, a.domain, a.bus, a.dev, a.fn);
        p = &t->pci[last];
        if (root < 0) {
            /* An address outside any pciDDDD:BB directory says nothing about the tree. */
            continue;
        }
        if ((p->flags & PVN_TOPO_PCI_NO_PATH) != 0) {
            p->flags &= ~(unsigned)PVN_TOPO_PCI_NO_PATH;
            p->parent = p->seen_parent = parent;
            p->root = root;
            p->depth = parent >= 0 ? t->pci[parent].depth + 1 : 0;
            p->path = strndup(real, (size_t)(at - real));
            if (!p->path)
                return pvn_topo_reader_nomem(r);
        } else if (p->parent != parent || p->root != root) {
            pvn_topo_leave_note(
                r, real, "%s is elsewhere in the tree by another path, which came first", p->bdf);
        }
        parent = last;
    }
    return 0;
}

static int place_functions(struct pvn_topo_reader *r, const struct listing *l)
{
    for (int i = 0; i < l->names.n; i++) {
        int rc = l->real[i] ? place_path(r, l->real[i]) : 0;

        if (rc != 0)
            return rc;
    }
    /* An entry that is a directory and no link (captures made without links) has files but no
     * place. */
    for (int i = 0; i < l->names.n; i++) {
        struct pvn_topo_pci *p;
        struct addr a;

        parse_component(l->names.name[i], &a);
        p = &r->topo->pci[pvn_topo_pci_index(r->topo, a.domain, a.bus, a.dev, a.fn)];
        p->flags &= ~(unsigned)PVN_TOPO_PCI_GAP;
        if ((p->flags & PVN_TOPO_PCI_NO_PATH) != 0 && l->real[i] && !p->path) {
            pvn_topo_leave_note(r, l->real[i],
                                "not below a pciDDDD:BB directory: its place in the tree is "
                                "unknown");
            p->path = strdup(l->real[i]);
            if (!p->path)
                return pvn_topo_reader_nomem(r);
        }
    }
    return 0;
}

/* "8.0 GT/s PCIe", "8 GT/s" or "Unknown"; the kernel's own word for
 * not knowing is "Unknown speed". */
static int parse_speed(const char *text)
{
    int whole = 0, tenth = 0, used = 0;

    if (sscanf(text, "%5d.%1d GT/s%n", &whole, &tenth, &used) != 2 || used == 0) {
        tenth = 0;
        used = 0;
        if (sscanf(text, "%5d GT/s%n", &whole, &used) != 1 || used == 0)
            return PVN_TOPO_UNKNOWN;
    }
    if (whole < 0 || tenth < 0 || whole * 1000 + tenth * 100 == 0)
        return PVN_TOPO_UNKNOWN;
    return whole * 1000 + tenth * 100;
}

/* 255 is the kernel's PCIE_LNK_WIDTH_UNKNOWN. */
static int known_width(int width)
{
    return width > 32 ? PVN_TOPO_UNKNOWN : width;
}

static void read_link(struct pvn_topo_reader *r, struct pvn_topo_pci *p)
{
    struct pvn_topo_pci_link *l = &p->link;

    l->width_max_read = PVN_TOPO_UNKNOWN;
    pvn_topo_read_text(r, p->path, "current_link_speed", l->speed_text, sizeof(l->speed_text));
    if (pvn_topo_read_text(r, p->path, "max_link_speed", l->speed_max_text,
                           sizeof(l->speed_max_text)))
        l->width_max_read = pvn_topo_read_int(r, p->path, "max_link_width", 10, 0, 255);
    l->width_max = known_width(l->width_max_read);
    l->speed_mts = parse_speed(l->speed_text);
    l->speed_max_mts = parse_speed(l->speed_max_text);
    l->width = known_width(pvn_topo_read_int(r, p->path, "current_link_width", 10, 0, 255));
}

static void read_bars(struct pvn_topo_reader *r, struct pvn_topo_pci *p)
{
    char text[2048];
    const char *line = text;
    ssize_t got = pvn_topo_fs_read_at(r->fs, p->path, "resource", text, sizeof(text) - 1);

    text[got > 0 ? got : 0] = '\0';
    for (int i = 0; i < 6; i++) {
        uint64_t start, end;

        if (sscanf(line, "%" SCNx64 " %" SCNx64, &start, &end) != 2)
            return;
        p->bar_size[i] = end > start ? end - start + 1 : 0;
        line = strchr(line, '\n');
        if (!line)
            return;
        line++;
    }
}

struct config_file {
    struct pvn_topo_fs *fs;
    const char *dir;
};

static ssize_t read_config_file(void *ctx, size_t at, void *buf, size_t len)
{
    const struct config_file *f = ctx;

    return pvn_topo_fs_pread_at(f->fs, f->dir, "config", at, buf, len);
}

static void read_config(struct pvn_topo_reader *r, struct pvn_topo_pci *p)
{
    struct config_file file = {r->fs, p->path};
    const struct pvn_topo_config_source src = {read_config_file, &file};
    bool damaged = false;

    if ((r->flags & PVN_TOPO_NO_CONFIG) != 0)
        return;
    pvn_topo_decode_config(&p->config, &src, &damaged);
    if (damaged) {
        pvn_topo_leave_note(r, p->path,
                            "its capability list is damaged or loops; what follows is unknown");
    }
    if (p->config.all_ones) {
        pvn_topo_leave_note(r, p->path,
                            "config space reads all ones: the device is off, lost or asleep");
    }
}

static void read_links(struct pvn_topo_reader *r, struct pvn_topo_pci *p)
{
    char name[PVN_TOPO_NAME_MAX];
    struct addr a;

    if (pvn_topo_read_link_name(r, p->path, "driver", p->driver, sizeof(p->driver))) {
        p->driver_bound = PVN_TOPO_TRI_YES;
    } else {
        p->driver_bound =
            p->class_code != PVN_TOPO_UNKNOWN ? PVN_TOPO_TRI_NO : PVN_TOPO_TRI_UNKNOWN;
    }
    if (pvn_topo_read_link_name(r, p->path, "iommu_group", name, sizeof(name))) {
        if (!pvn_topo_parse_int(name, 10, 0, INT_MAX, &p->iommu_group))
            pvn_topo_leave_note(r, p->path, "IOMMU group \"%s\" is no number", name);
    } else if (r->topo->iommu.ngroups != PVN_TOPO_UNKNOWN) {
        p->iommu_group = -1;
    }
    if (pvn_topo_read_link_name(r, p->path, "physfn", name, sizeof(name))) {
        p->physfn = parse_component(name, &a)
                        ? pvn_topo_pci_index(r->topo, a.domain, a.bus, a.dev, a.fn)
                        : -1;
        if (p->physfn < 0)
            pvn_topo_leave_note(r, p->path, "physical function \"%s\" is not there", name);
    }
}

static void read_function(struct pvn_topo_reader *r, struct pvn_topo_pci *p)
{
    pvn_topo_fs_enter(r->fs, p->path);
    p->class_code = pvn_topo_read_int(r, p->path, "class", 16, 0, 0xffffff);
    if (p->class_code != PVN_TOPO_UNKNOWN)
        p->flags &= ~(unsigned)PVN_TOPO_PCI_GAP;
    p->vendor = pvn_topo_read_int(r, p->path, "vendor", 16, 0, 0xffff);
    p->device = pvn_topo_read_int(r, p->path, "device", 16, 0, 0xffff);
    p->subvendor = pvn_topo_read_int(r, p->path, "subsystem_vendor", 16, 0, 0xffff);
    p->subdevice = pvn_topo_read_int(r, p->path, "subsystem_device", 16, 0, 0xffff);
    p->revision = pvn_topo_read_int(r, p->path, "revision", 16, 0, 0xff);
    p->numa = pvn_topo_read_int(r, p->path, "numa_node", 10, -1, 65535);
    pvn_topo_read_text(r, p->path, "numa_node", p->numa_text, sizeof(p->numa_text));
    pvn_topo_read_text(r, p->path, "local_cpulist", p->local_cpulist, sizeof(p->local_cpulist));
    if (strlen(p->local_cpulist) == sizeof(p->local_cpulist) - 1)
        p->local_cpulist[0] = '\0'; /* it was cut, and part of a list would be wrong */
    read_link(r, p);
    read_config(r, p);
    read_links(r, p);
    read_bars(r, p);
    if (p->class_code >> 8 == 0x0604) {
        p->secondary = pvn_topo_read_int(r, p->path, "secondary_bus_number", 10, 0, 255);
        p->subordinate = pvn_topo_read_int(r, p->path, "subordinate_bus_number", 10, 0, 255);
    } else {
        p->total_vfs = pvn_topo_read_int(r, p->path, "sriov_totalvfs", 10, 0, 65535);
        p->num_vfs = pvn_topo_read_int(r, p->path, "sriov_numvfs", 10, 0, 65535);
    }
}

/* The node of a root bus is the one that all its functions name. */
static void root_numas(struct pvn_topo *t)
{
    for (int i = 0; i < t->nroots; i++)
        t->roots[i].numa = INT_MAX; /* not seen yet */
    for (int i = 0; i < t->npci; i++) {
        struct pvn_topo_root *root = t->pci[i].root >= 0 ? &t->roots[t->pci[i].root] : NULL;

        if (!root || t->pci[i].numa == PVN_TOPO_UNKNOWN)
            continue;
        if (root->numa == INT_MAX)
            root->numa = t->pci[i].numa;
        else if (root->numa != t->pci[i].numa)
            root->numa = PVN_TOPO_UNKNOWN;
    }
    for (int i = 0; i < t->nroots; i++)
        if (t->roots[i].numa == INT_MAX)
            t->roots[i].numa = PVN_TOPO_UNKNOWN;
}

int pvn_topo_read_pci(struct pvn_topo_reader *r)
{
    struct listing l = {0};
    int rc = list_functions(r, &l);

    if (rc == 0)
        rc = make_functions(r, &l);
    if (rc == 0)
        rc = place_functions(r, &l);
    if (rc == 0) {
        for (int i = 0; i < r->topo->npci; i++)
            if (r->topo->pci[i].path)
                read_function(r, &r->topo->pci[i]);
        pvn_topo_pci_kinds(r->topo);
        root_numas(r->topo);
    }
    for (int i = 0; l.real && i < l.names.n; i++)
        free(l.real[i]);
    free(l.real);
    pvn_topo_fs_names_free(&l.names);
    return rc;
}

static int index_of_name(const struct pvn_topo *topo, const char *name)
{
    struct addr a;

    return parse_component(name, &a) ? pvn_topo_pci_index(topo, a.domain, a.bus, a.dev, a.fn) : -1;
}

/* Reads an entry of which only the name counts, so that a gathered machine has the entry. */
static void read_entry(struct pvn_topo_reader *r, const char *dir, const char *name)
{
    char path[160], buf[64];

    snprintf(path, sizeof(path), "%.100s/%.20s", dir, name);
    if (pvn_topo_fs_readlink_at(r->fs, dir, name, buf, sizeof(buf)) < 0 &&
        pvn_topo_fs_type(r->fs, path) != PVN_TOPO_FS_DIR)
        pvn_topo_fs_read_at(r->fs, dir, name, buf, sizeof(buf));
}

static int read_links_of(struct pvn_topo_reader *r, const char *from)
{
    char dir[100]; /* an address has 16 characters at most */
    struct pvn_topo_fs_names names = {0};
    struct pvn_topo *t = r->topo;
    int at = index_of_name(t, from), rc = 0;

    snprintf(dir, sizeof(dir), "%s/%.20s", switch_dir, from);
    if (at < 0 || pvn_topo_fs_list(r->fs, dir, &names) != 0)
        return 0;
    for (int i = 0; rc == 0 && i < names.n; i++) {
        int to = index_of_name(t, names.name[i]);
        struct pvn_topo_switch_link *link;

        if (to < 0 || !t->pci[to].path)
            continue;
        read_entry(r, dir, names.name[i]);
        if (t->nswitch_links == PVN_TOPO_MAX_SWITCH_LINKS)
            rc = pvn_topo_reader_too_many(r, "links of PCI switches", PVN_TOPO_MAX_SWITCH_LINKS);
        else if (!(link = pvn_topo_array_add((void **)&t->switch_links, &t->nswitch_links,
                                             sizeof(*link))))
            rc = pvn_topo_reader_nomem(r);
        else
            *link = (struct pvn_topo_switch_link){.from = at, .to = to};
    }
    pvn_topo_fs_names_free(&names);
    return rc;
}

int pvn_topo_read_switch_links(struct pvn_topo_reader *r)
{
    struct pvn_topo_fs_names names = {0};
    int rc = 0;

    if (pvn_topo_fs_list(r->fs, switch_dir, &names) != 0)
        return 0; /* the driver is not loaded, as on almost every machine */
    for (int i = 0; rc == 0 && i < names.n; i++)
        rc = read_links_of(r, names.name[i]);
    pvn_topo_fs_names_free(&names);
    return rc;
}
