/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo --json check: facts that should be equal on all hosts of a job, as names and values. */
#include "config.h"
#include "topo/tool/check/facts.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <jansson.h>
#include <link.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/tools/nccl_conf.h"
#include "plugin/tools/sha256.h"
#include "topo/tool/base/json.h"
#include "topo/tool/check/key_file.h"
#include "topo/tool/stat/stat_look.h"

/* Adds a fact. value NULL: it could not be read. */
static void add_fact(json_t *facts, const char *fact, const char *subject, const char *value)
{
    json_t *o = json_object();
    json_object_set_new(o, "fact", json_string(fact));
    json_object_set_new(o, "subject", subject[0] ? json_text(subject) : json_null());
    json_object_set_new(o, "value", value && value[0] ? json_text(value) : json_null());
    json_array_append_new(facts, o);
}

__attribute__((format(printf, 4, 5))) static void put(json_t *facts, const char *fact,
                                                      const char *subject, const char *format, ...)
{
    char value[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(value, sizeof(value), format, ap);
    va_end(ap);
    add_fact(facts, fact, subject, value);
}

/* ---- the machine ---- */

static void add_gpus(const struct tool *t, json_t *facts)
{
    char text[512] = "";
    for (int i = 0; i < t->topo->ngpus; i++) {
        const char *model = t->topo->gpus[i].model;
        size_t used = strlen(text);
        int same = 0;
        bool first = true;
        for (int j = 0; j < t->topo->ngpus; j++) {
            bool alike = strcmp(t->topo->gpus[j].model, model) == 0;
            first &= !(alike && j < i);
            same += alike;
        }
        if (first)
            snprintf(text + used, sizeof(text) - used, "%s%d x %s", used ? ", " : "", same,
                     model[0] ? model : "GPU of unknown model");
    }
    bool known = (t->topo->unread & PVN_TOPO_UNREAD_PCI) == 0;
    add_fact(facts, "gpus", "", text[0] ? text : known ? "none" : NULL);
}

static void add_nics(const struct tool *t, json_t *facts)
{
    const struct pvn_topo *topo = t->topo;
    char text[1024] = "";
    for (int i = 0; i < topo->nrdmas; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? " " : "",
                 topo->rdmas[i].name);
    bool known = (topo->unread & PVN_TOPO_UNREAD_RDMAS) == 0;
    add_fact(facts, "rdma-devices", "", text[0] ? text : known ? "none" : NULL);
    for (int i = 0; i < topo->nrdmas; i++) {
        const struct pvn_topo_rdma *r = &topo->rdmas[i];
        int module = pvn_topo_find_module(topo, r->driver);
        const char *version = module >= 0 ? topo->modules[module].version : "";
        put(facts, "nic-driver", r->name, "%s%s%s", r->driver, version[0] ? " " : "", version);
        add_fact(facts, "firmware", r->name, r->fw_ver);
    }
}

static void add_nvidia(const struct tool *t, json_t *facts)
{
    const struct pvn_topo_nvidia *nv = &t->topo->nvidia;
    if (nv->loaded == PVN_TOPO_TRI_YES)
        put(facts, "nvidia-driver", "", "%s%s", nv->version[0] ? nv->version : "of unknown version",
            nv->open_modules == PVN_TOPO_TRI_YES ? ", open kernel modules" : "");
    else
        add_fact(facts, "nvidia-driver", "", nv->loaded == PVN_TOPO_TRI_NO ? "not loaded" : NULL);
}

static void add_memlock(const struct tool *t, json_t *facts)
{
    if (!t->topo->memlock_known)
        add_fact(facts, "memlock", "", NULL);
    else if (t->topo->memlock_soft == UINT64_MAX)
        add_fact(facts, "memlock", "", "unlimited");
    else
        put(facts, "memlock", "", "%" PRIu64 " KiB", t->topo->memlock_soft / 1024);
}

/* ---- ports ---- */

static void add_gid(const struct pvn_topo_rdma_port *port, const char *subject, json_t *facts)
{
    static const char *const types[] = {[PVN_TOPO_GID_UNKNOWN] = "",
                                        [PVN_TOPO_GID_IB] = "IB",
                                        [PVN_TOPO_GID_ROCE_V1] = "RoCE v1",
                                        [PVN_TOPO_GID_ROCE_V2] = "RoCE v2"};
    char why[200];
    bool usable;
    int index = pvn_topo_gid_pick(port, &usable, why, sizeof(why));
    if (port->gid_table_len == 0 || index < 0) {
        add_fact(facts, "gid-index", subject, port->gid_table_len ? "none" : NULL);
        return;
    }
    put(facts, "gid-index", subject, "%d", index);
    for (int i = 0; i < port->ngids; i++)
        if (port->gids[i].index == index)
            add_fact(facts, "gid-type", subject, types[port->gids[i].type]);
}

static void add_mtu(const struct pvn_topo_net *net, const char *subject, json_t *facts)
{
    if (net->mtu == PVN_TOPO_UNKNOWN)
        add_fact(facts, "mtu", subject, NULL);
    else
        put(facts, "mtu", subject, "%d", net->mtu);
}

/* The class of an interface for the plugin over TCP, which uses the members of the first class that
 * has any. */
enum offer { OFFER_REAL, OFFER_VIRTUAL, OFFER_TUNNEL, OFFER_NONE };

static bool has_uplink(const struct pvn_topo *topo, int bridge)
{
    for (int i = 0; i < topo->nnets; i++)
        if (topo->nets[i].master == bridge &&
            (topo->nets[i].pci >= 0 || topo->nets[i].kind == PVN_TOPO_NET_BOND ||
             topo->nets[i].kind == PVN_TOPO_NET_TEAM || topo->nets[i].kind == PVN_TOPO_NET_VLAN))
            return true;
    return false;
}

static enum offer offer_of(const struct pvn_topo *topo, int i)
{
    const struct pvn_topo_net *net = &topo->nets[i];
    /* An interface without a PCI function that is down may be left over from anything. */
    if (net->pci < 0 && strcmp(net->operstate, "down") == 0)
        return OFFER_NONE;
    switch (net->kind) {
    case PVN_TOPO_NET_LOOPBACK:
    case PVN_TOPO_NET_OTHER:
        return OFFER_NONE;
    case PVN_TOPO_NET_BRIDGE:
        return has_uplink(topo, i) ? OFFER_REAL : OFFER_NONE;
    case PVN_TOPO_NET_TUNNEL:
        return OFFER_TUNNEL;
    case PVN_TOPO_NET_VIRTUAL: /* a port of a bond, team or bridge has no address */
        return net->master < 0 ? OFFER_VIRTUAL : OFFER_NONE;
    default:
        return OFFER_REAL;
    }
}

/* Adds the interfaces that TCP uses. Those that are left out are named. */
static void add_interfaces(const struct pvn_topo *topo, json_t *facts)
{
    enum offer best = OFFER_NONE;
    char left_out[1024] = "";
    for (int i = 0; i < topo->nnets; i++)
        if (offer_of(topo, i) < best)
            best = offer_of(topo, i);
    for (int i = 0; i < topo->nnets; i++) {
        const struct pvn_topo_net *net = &topo->nets[i];
        if (net->pci >= 0 && pvn_topo_rdma_of_pci(topo, net->pci) >= 0)
            continue; /* the RDMA port covers it */
        if (net->pci >= 0 || (best < OFFER_NONE && offer_of(topo, i) == best))
            add_mtu(net, net->name, facts);
        else if (net->kind != PVN_TOPO_NET_LOOPBACK)
            snprintf(left_out + strlen(left_out), sizeof(left_out) - strlen(left_out), "%s%s",
                     left_out[0] ? " " : "", net->name);
    }
    if (left_out[0])
        add_fact(facts, "left-out", "", left_out);
}

static void add_ports(const struct tool *t, json_t *facts)
{
    const struct pvn_topo *topo = t->topo;
    for (int i = 0; i < topo->nrdmas; i++) {
        for (int p = 0; p < topo->rdmas[i].nports; p++) {
            const struct pvn_topo_rdma_port *port = &topo->rdmas[i].ports[p];
            char subject[PVN_TOPO_NAME_MAX + 16];
            snprintf(subject, sizeof(subject), "%s port %d", topo->rdmas[i].name, port->num);
            add_fact(facts, "rate", subject, port->rate_text);
            if (port->netdev >= 0)
                add_mtu(&topo->nets[port->netdev], subject, facts);
            if (port->layer == PVN_TOPO_LINK_ETHERNET)
                add_gid(port, subject, facts);
        }
    }
    add_interfaces(topo, facts);
}

/* ---- PCIe ---- */

static void add_link(const struct pvn_topo_pci *f, bool idles, const char *subject, json_t *facts)
{
    const struct pvn_topo_pci_link *l = &f->link;
    int speed = idles ? l->speed_max_mts : l->speed_mts;
    if (l->width == PVN_TOPO_UNKNOWN || speed == PVN_TOPO_UNKNOWN)
        add_fact(facts, "link", subject, NULL);
    else
        put(facts, "link", subject, "x%d %s", l->width, pvn_topo_link_speed_name(speed));
}

/* Adds the classes of one GPU's paths to the NICs, "node 0; PIX mlx5_0; SYS mlx5_1 mlx5_2". */
static void add_shape(const struct tool *t, int gpu, const char *subject, json_t *facts)
{
    char text[1024];
    int numa = tool_numa(t, pvn_topo_pairs_gpu_pci(t->pairs, gpu), t->tree->gpus[gpu]);
    if (numa == PVN_TOPO_UNKNOWN)
        snprintf(text, sizeof(text), "node unknown");
    else
        snprintf(text, sizeof(text), "node %d", numa);
    for (int i = 0; i < t->tree->n_nets; i++) {
        const char *name = pvn_topo_npath_name(pvn_topo_ntree_gpu_net(t->tree, gpu, i)->type);
        bool first = true;
        for (int j = 0; j < i; j++)
            first &=
                strcmp(name, pvn_topo_npath_name(pvn_topo_ntree_gpu_net(t->tree, gpu, j)->type)) !=
                0;
        if (!first)
            continue;
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "; %s", name);
        for (int j = i; j < t->tree->n_nets; j++)
            if (strcmp(name, pvn_topo_npath_name(pvn_topo_ntree_gpu_net(t->tree, gpu, j)->type)) ==
                0)
                snprintf(text + strlen(text), sizeof(text) - strlen(text), " %s",
                         tool_net(t, j)->net.name);
    }
    add_fact(facts, "topology", subject, text);
}

static void add_pcie(const struct tool *t, json_t *facts)
{
    char label[16];
    for (int g = 0; g < t->tree->n_gpus; g++) {
        int pci = pvn_topo_pairs_gpu_pci(t->pairs, g);
        if (pci >= 0) /* an idle GPU lowers its speed */
            add_link(&t->topo->pci[pci], true, tool_gpu_label(t, g, label), facts);
        add_shape(t, g, tool_gpu_label(t, g, label), facts);
    }
    for (int i = 0; i < t->topo->nrdmas; i++)
        if (t->topo->rdmas[i].pci >= 0)
            add_link(&t->topo->pci[t->topo->rdmas[i].pci], false, t->topo->rdmas[i].name, facts);
}

/* ---- the plugin and its environment ---- */

/* Finds the text after a mark in a file, up to the first character that no version has. */
static void find_version(const char *path, char *out, size_t cap)
{
    static const char mark[] = "@(#)nccl-net-pvrdma ";
    FILE *f = fopen(path, "re");
    char buf[65536], *at = NULL;
    size_t keep = 0, n;
    out[0] = '\0';
    while (f && !at && (n = fread(buf + keep, 1, sizeof(buf) - keep, f)) > 0) {
        at = memmem(buf, keep + n, mark, sizeof(mark) - 1);
        if (at && (size_t)(buf + keep + n - at) >= sizeof(mark) + 32) {
            at += sizeof(mark) - 1;
            snprintf(out, cap, "%.*s", (int)strspn(at, "0123456789.abcdefghijklmnopqrstuvwxyz-+~"),
                     at);
        } else {
            at = NULL;
        }
        size_t all = keep + n;
        keep = all < 256 ? all : 256;
        memmove(buf, buf + all - keep, keep);
    }
    if (f)
        fclose(f);
}

bool tool_plugin_file(const struct tool *t, int n, char *buf, size_t len)
{
    const char *name = t->ignore_env ? NULL : getenv("NCCL_NET_PLUGIN");
    if (!name)
        name = "pvrdma";
    if (strcasecmp(name, "none") == 0)
        return false;
    for (name += strspn(name, ","); n > 0 && *name; n--) {
        name += strcspn(name, ",");
        name += strspn(name, ",");
    }
    int used = (int)strcspn(name, ",");
    const char *end = name + used, *so = strstr(name, ".so"), *slash = strchr(name, '/');
    snprintf(buf, len, (slash && slash < end) || (so && so < end) ? "%.*s" : "libnccl-net-%.*s.so",
             used, name);
    return used > 0;
}

static void add_plugin(const struct tool *t, json_t *facts)
{
    char file[512], version[64], sum[PVN_SHA256_TEXT] = "";
    struct link_map *map = NULL;
    if (!tool_plugin_file(t, 0, file, sizeof(file))) {
        add_fact(facts, "plugin", "", "none");
        return;
    }
    void *lib = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (!lib || dlinfo(lib, RTLD_DI_LINKMAP, &map) != 0 || !map) {
        add_fact(facts, "plugin", "", "cannot be loaded");
    } else {
        find_version(map->l_name, version, sizeof(version));
        pvn_sha256_file(map->l_name, sum);
        add_fact(facts, "plugin", "", version[0] ? version : "of another project");
        add_fact(facts, "plugin-sha256", "", sum);
    }
    if (lib)
        dlclose(lib);
}

/* Adds NAME=VALUE of an NCCL variable; different values of two processes are reported. */
static void add_variable(json_t *all, const char *entry)
{
    const char *equals = strchr(entry, '=');
    char name[128], text[512];
    if (strncmp(entry, "NCCL_", 5) != 0 || !equals || equals - entry >= (long)sizeof(name))
        return;
    snprintf(name, sizeof(name), "%.*s", (int)(equals - entry), entry);
    const char *seen = json_string_value(json_object_get(all, name));
    if (seen && strcmp(seen, equals + 1) != 0 && strncmp(seen, "differs ", 8) != 0) {
        snprintf(text, sizeof(text), "differs between its processes: %.200s, %.200s", seen,
                 equals + 1);
        json_object_set_new(all, name, json_text(text));
    } else if (!seen) {
        json_object_set_new(all, name, json_text(equals[1] ? equals + 1 : "(empty)"));
    }
}

/* Whose environment it is. */
struct owner {
    uid_t user;
    char home[1024]; /* HOME; "" if it is not set */
};

/* Reads a process's environment, which only its user and root may do. */
static bool read_process(json_t *all, unsigned long long pid, struct owner *owner)
{
    struct stat st;
    char path[64], *entry = NULL;
    size_t cap = 0;
    snprintf(path, sizeof(path), "/proc/%llu/environ", pid);
    FILE *f = fopen(path, "re");
    bool read = f != NULL;
    if (f && fstat(fileno(f), &st) == 0)
        owner->user = st.st_uid;
    if (f)
        owner->home[0] = '\0';
    while (f && getdelim(&entry, &cap, '\0', f) > 0) {
        add_variable(all, entry);
        if (strncmp(entry, "HOME=", 5) == 0)
            snprintf(owner->home, sizeof(owner->home), "%s", entry + 5);
    }
    free(entry);
    if (f)
        fclose(f);
    return read;
}

/* Adds the job's key, of which only length and label are shown. */
static void add_key(const struct tool *t, json_t *facts, json_t *all, uid_t user)
{
    const char *path = json_string_value(json_object_get(all, "NCCL_PVRDMA_KEY_FILE"));
    const char *library = json_string_value(json_object_get(all, "NCCL_PVRDMA_SSL_LIB"));
    char text[512];
    /* NCCL's configuration file may set it. */
    if (!path && !t->ignore_env)
        path = getenv("NCCL_PVRDMA_KEY_FILE");
    if (path && path[0] && strcmp(path, "(empty)") != 0)
        add_fact(facts, "key", "",
                 strncmp(path, "differs ", 8) == 0
                     ? path
                     : tool_key_text(path, library, user, text, sizeof(text)));
}

/* Adds the environment of the plugin's processes on this host, else that of this shell. */
static void add_environment(const struct tool *t, json_t *facts)
{
    extern char **environ;
    struct stat_list list = {0};
    json_t *all = json_object(), *value;
    const char *name, *home = getenv("HOME");
    struct owner owner = {.user = getuid()};
    int seen = 0;
    snprintf(owner.home, sizeof(owner.home), "%s", home ? home : "");
    stat_read(&list);
    for (int i = 0; i < list.n; i++)
        if (list.file[i].life == PVN_STATS_ALIVE)
            seen += read_process(all, list.file[i].head.id.pid, &owner);
    stat_list_free(&list);
    for (char **e = environ; seen == 0 && !t->ignore_env && e && *e; e++)
        if (!pvn_nccl_conf_has(*e))
            add_variable(all, *e);
    json_object_foreach(all, name, value)
        add_fact(facts, seen ? "environment" : "shell", name, json_string_value(value));
    add_key(t, facts, all, owner.user);
    name = json_string_value(json_object_get(all, "NCCL_CONF_FILE"));
    facts_nccl_conf(facts, all, name && strcmp(name, "(empty)") != 0 ? name : NULL,
                    owner.home[0] ? owner.home : NULL);
    json_decref(all);
}

json_t *json_facts(const struct tool *t)
{
    json_t *facts = json_array();
    add_fact(facts, "kernel", "", t->topo->kernel);
    add_fact(facts, "cpu", "", t->topo->cpu.model_name);
    add_gpus(t, facts);
    add_nvidia(t, facts);
    add_nics(t, facts);
    add_ports(t, facts);
    add_pcie(t, facts);
    add_memlock(t, facts);
    if (t->topo->live) {
        add_plugin(t, facts);
        add_environment(t, facts);
    }
    return facts;
}
