/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Loads what the commands work on: a machine (live, a directory, a tar) or an NCCL XML file. */
#include "topo/tool/load/load.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/base/dev_list.h"
#include "topo/nccl/gdr.h"
#include "topo/nccl/lost.h"
#include "topo/tool/load/counters.h"

static const char *from_environment(const char *name, void *user)
{
    (void)user;
    return getenv(name);
}

static int parse_doc(const char *path, const struct pvn_topo_input *in, struct pvn_topo_ndoc **doc)
{
    struct pvn_topo_xml_error err;
    if (pvn_topo_nccl_xml_parse(in->data, in->len, doc, &err) == 0)
        return TOOL_OK;
    if (err.line > 0)
        tool_error("%s:%d:%d: %s", path, err.line, err.column, err.text);
    else
        tool_error("%s: %s", path, err.text);
    return TOOL_INPUT;
}

static int read_doc(const struct tool *t, const char *path, struct pvn_topo_ndoc **doc)
{
    struct pvn_topo_input in;
    int status = tool_read(t, path, &in);
    if (status != TOOL_OK)
        return status;
    status = parse_doc(path, &in, doc);
    pvn_topo_input_free(&in);
    return status == TOOL_OK ? tool_escape_doc(t, *doc) : status;
}

/* The topology file that NCCL reads: that of the variable, else NVIDIA's file for VMs if it exists.
 * The variables of this machine do not apply to another one. */
static const char *default_topo_file(const struct tool *t, char *buf, size_t len)
{
    static const char virtual_file[] = "var/run/nvidia-topologyd/virtualTopology.xml";
    const char *name = getenv("NCCL_TOPO_FILE");
    if (strcmp(t->root, "/") == 0 && name && !t->ignore_env)
        return name;
    snprintf(buf, len, "%s/%s", strcmp(t->root, "/") == 0 ? "" : t->root, virtual_file);
    return access(buf, R_OK) == 0 ? buf : NULL;
}

/* A variable's value, NULL if it is not set. An empty value counts as unset, as in the plugin. */
static const char *variable_of(const struct tool *t, const char *name)
{
    const char *value = t->ignore_env ? NULL : getenv(name);
    return value && value[0] ? value : NULL;
}

/* True if the variable that selects NICs of this kind selects this one. The NIC gets the rail that
 * the variable names. The plugin's variable overrides NCCL's. */
static bool chosen(const struct tool *t, struct pvn_topo_nic *nic, const char **variable)
{
    const char *value;
    *variable = nic->rdma >= 0 ? "NCCL_PVRDMA_IB_HCA" : "NCCL_PVRDMA_SOCKET_IFNAME";
    if (!(value = variable_of(t, *variable))) {
        *variable = nic->rdma >= 0 ? "NCCL_IB_HCA" : "NCCL_SOCKET_IFNAME";
        value = variable_of(t, *variable);
    }
    if (!value)
        return true;
    if (nic->rdma < 0)
        return pvn_dev_list_matches(value, nic->name, 0);
    const struct pvn_topo_rdma *r = &t->topo->rdmas[nic->rdma];
    int port = r->ports[nic->port_index].num, plane;
    pvn_dev_list_place(value, r->name, port, &nic->rail, &plane);
    return pvn_dev_list_matches(value, r->name, port);
}

/* Removes devices that the plugin would not offer, so that they get no number. */
static void apply_choice(struct tool *t)
{
    struct pvn_topo_nics *nics = &t->nics;
    const char *variable;
    int kept = 0;
    for (int i = 0; i < nics->n; i++) {
        size_t used = strlen(t->not_chosen);
        if (chosen(t, &nics->list[i], &variable))
            nics->list[kept++] = nics->list[i];
        else
            snprintf(t->not_chosen + used, sizeof(t->not_chosen) - used, "%s%s (%s)",
                     used ? ", " : "", nics->list[i].name, variable);
    }
    nics->n = kept;
}

/* Cuts the list. NCCL's own transport and the plugin use at most 32 devices; a host with virtual
 * functions has more. */
static int cut_list(struct tool *t)
{
    int most = t->nics_choice == PVN_TOPO_NICS_ALL ? 256 : 32, more = t->nics.n - most;
    if (more <= 0)
        return 0;
    t->nics.n = most;
    return more;
}

static void note_cut(struct tool *t, int more)
{
    char *note = t->pairs->note;
    size_t used = strlen(note);
    if (more > 0)
        snprintf(note + used, sizeof(t->pairs->note) - used,
                 "%s%d more NICs are left out: %d are what NCCL and the plugin take, in PCI order. "
                 "Choose by NCCL_IB_HCA.",
                 used ? " " : "", more, t->nics.n);
}

static void add_note(struct tool *t, const char *text)
{
    char *note = t->pairs->note;
    size_t used = strlen(note);
    snprintf(note + used, sizeof(t->pairs->note) - used, "%s%s", used ? " " : "", text);
}

/* Notes devices that the document has and NCCL's tree of it lacks. */
static void note_lost(struct tool *t)
{
    const struct pvn_topo_ndoc *doc = t->tree->doc;
    char list[160], text[420];
    for (int i = 0; i < doc->n_nodes; i++) {
        if (pvn_topo_ndoc_lost(doc->nodes[i], list, sizeof(list)) == 0)
            continue;
        snprintf(text, sizeof(text),
                 "NCCL never visits %s: %.20s, above, holds a <nic>, so NCCL takes it for a NIC "
                 "and looks no further.",
                 list, pvn_topo_ndoc_get(doc->nodes[i], "busid"));
        add_note(t, text);
    }
}

/* Notes a file with bus ids only: a file for NCCL_TOPO_FILE may leave the rest to the machine's
 * sysfs. */
static void note_bare(struct tool *t)
{
    int leaves = 0, classless = 0, links = 0, all = 0;
    char text[420];
    for (int i = 0; i < t->doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *node = t->doc->nodes[i];
        if (!pvn_topo_ndoc_is(node, "pci"))
            continue;
        all++;
        links += pvn_topo_ndoc_get(node, "link_speed") && pvn_topo_ndoc_get(node, "link_width");
        if (node->n_subs == 0) {
            leaves++;
            classless += !pvn_topo_ndoc_get(node, "class");
        }
    }
    if (classless > 0)
        snprintf(text, sizeof(text),
                 "%d of the %d devices in this file have no class and %d of %d no link: which are "
                 "GPUs and NICs NCCL reads from sysfs where it runs. There: pvn-topo --topo-file "
                 "FILE pairs.",
                 classless, leaves, all - links, all);
    else if (links < all)
        snprintf(text, sizeof(text),
                 "%d of %d links are not stated in this file; NCCL counts 12 GB/s for each unless "
                 "sysfs says more.",
                 all - links, all);
    if (classless > 0 || links < all)
        add_note(t, text);
}

bool tool_rdma_is_off(const struct tool *t)
{
    const char *disable = variable_of(t, "NCCL_IB_DISABLE");
    return disable && strtoll(disable, NULL, 0) != 0 && !variable_of(t, "NCCL_PVRDMA_TRANSPORT");
}

static enum pvn_topo_nic_choice kind_of_nics(const struct tool *t)
{
    const char *transport = variable_of(t, "NCCL_PVRDMA_TRANSPORT");
    if (t->nics_choice == PVN_TOPO_NICS_AUTO && tool_rdma_is_off(t))
        return PVN_TOPO_NICS_TCP;
    if (t->nics_choice != PVN_TOPO_NICS_AUTO || !transport)
        return t->nics_choice;
    return strcmp(transport, "tcp") == 0    ? PVN_TOPO_NICS_TCP
           : strcmp(transport, "rdma") == 0 ? PVN_TOPO_NICS_RDMA
                                            : PVN_TOPO_NICS_AUTO;
}

/* Sets rails. A list for a whole cluster (the variable) may name another host's device; a name on
 * the command line may not. */
static int set_rails(struct tool *t)
{
    const char *variable = variable_of(t, "NCCL_PVRDMA_RAILS");
    struct pvn_topo_err err;
    int rc = 0;
    pvn_topo_nics_find_rails(t->topo, &t->nics);
    if (t->rails)
        rc = pvn_topo_nics_set_rails(&t->nics, t->rails, &err);
    else if (variable && (rc = pvn_topo_nics_set_rails(&t->nics, variable, &err)) == -ENOENT)
        rc = 0;
    if (rc == 0)
        return TOOL_OK;
    tool_error("%s%s", t->rails ? "" : "NCCL_PVRDMA_RAILS: ", err.text);
    return TOOL_USAGE;
}

/* Reads the topology file. If the variable's file cannot be opened, that is only noted: NCCL then
 * continues without it (ncclTopoGetXmlFromFile). If --topo-file names the file, it is an error. */
static int read_topo_file(struct tool *t, const char *file)
{
    if (t->topo_file || access(file, R_OK) == 0)
        return read_doc(t, file, &t->file);
    t->file_errno = errno;
    t->file_missing = file;
    return TOOL_OK;
}

static void note_missing(struct tool *t)
{
    char text[300], name[160];
    snprintf(text, sizeof(text), "NCCL_TOPO_FILE=%s: %s. NCCL goes on without the file.",
             tool_escape(t->file_missing, name, sizeof(name)), strerror(t->file_errno));
    add_note(t, text);
}

/* in: the input from which the root was read; NULL for a directory. */
static int load_machine(struct tool *t, const struct pvn_topo_input *in)
{
    struct pvn_topo_err err;
    char why[256] = "", path[PATH_MAX];
    int status, code = in ? pvn_topo_input_machine(in, t->root, &t->topo, &err)
                          : pvn_topo_load(t->root, NULL, &t->topo, &err);
    if (code < 0) {
        tool_error("%s", err.text);
        return TOOL_INPUT;
    }
    if (t->with_counters && (status = tool_load_counters(t, in)) != TOOL_OK)
        return status;
    if ((status = tool_apply_merge(t)) != TOOL_OK)
        return status;
    tool_escape_machine(t, t->topo);
    if (pvn_topo_nics_find(t->topo, kind_of_nics(t), &t->nics) < 0) {
        tool_error("out of memory");
        return TOOL_INPUT;
    }
    apply_choice(t);
    int more = cut_list(t);
    if ((status = set_rails(t)) != TOOL_OK)
        return status;
    const char *file = t->topo_file ? t->topo_file : default_topo_file(t, path, sizeof(path));
    if (file && (status = read_topo_file(t, file)) != TOOL_OK)
        return status;
    pvn_topo_gdr_find(t->topo, &t->env, &t->nics);
    if (pvn_topo_pairs_new(t->topo, &t->nics, t->file, &t->env, &t->pairs, why, sizeof(why)) < 0) {
        tool_error("%s: %s", t->root, why);
        return TOOL_INPUT;
    }
    t->tree = t->pairs->tree;
    if (t->file_missing)
        note_missing(t);
    note_lost(t);
    note_cut(t, more);
    if (tool_rdma_is_off(t) && t->nics_choice == PVN_TOPO_NICS_AUTO && t->topo->nrdmas > 0)
        add_note(t, "RDMA devices are left alone: NCCL_IB_DISABLE is set; "
                    "NCCL_PVRDMA_TRANSPORT=auto overrides it for the plugin.");
    return TOOL_OK;
}

static int load_xml(struct tool *t, const struct pvn_topo_input *in)
{
    char why[256] = "";
    int status = parse_doc(t->root, in, &t->doc);
    if (status == TOOL_OK)
        status = tool_escape_doc(t, t->doc);
    if (status != TOOL_OK)
        return status;
    if (t->hints || t->host || t->topo_file || t->rails ||
        (t->nics_choice != PVN_TOPO_NICS_AUTO && !t->compares)) {
        tool_error("%s is an NCCL file: --hints, --host, --topo-file, --nics and --rails need a "
                   "machine",
                   t->root);
        return TOOL_USAGE;
    }
    if (pvn_topo_ndoc_complete(t->doc) < 0 ||
        pvn_topo_ntree_new(t->doc, &t->env, &t->tree, why, sizeof(why)) < 0) {
        tool_error("%s: %s", t->root, why[0] ? why : "out of memory");
        return TOOL_INPUT;
    }
    if (pvn_topo_pairs_of_tree(NULL, NULL, t->tree, &t->pairs) < 0) {
        tool_error("out of memory");
        return TOOL_INPUT;
    }
    note_lost(t);
    note_bare(t);
    return TOOL_OK;
}

/* Nodes of equal numbers keep their order. */
static int order_by_number(struct tool *t)
{
    int n = t->tree->n_nets, n_gpus = t->tree->n_gpus;
    t->net_order = calloc((size_t)n + 1, sizeof(*t->net_order));
    t->gpu_order = calloc((size_t)n_gpus + 1, sizeof(*t->gpu_order));
    if (!t->net_order || !t->gpu_order) {
        tool_error("out of memory");
        return TOOL_INPUT;
    }
    for (int i = 0; i < n_gpus; i++) {
        int at = i;
        for (; at > 0 && tool_gpu(t, t->gpu_order[at - 1])->gpu.dev > tool_gpu(t, i)->gpu.dev; at--)
            t->gpu_order[at] = t->gpu_order[at - 1];
        t->gpu_order[at] = i;
    }
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && tool_net(t, t->net_order[at - 1])->net.dev > tool_net(t, i)->net.dev; at--)
            t->net_order[at] = t->net_order[at - 1];
        t->net_order[at] = i;
    }
    return TOOL_OK;
}

int tool_load(struct tool *t)
{
    struct pvn_topo_input in;
    struct stat st;
    int status;
    pvn_topo_nccl_env_load(&t->env, t->ignore_env ? NULL : from_environment, NULL);
    if (stat(t->root, &st) == 0 && S_ISDIR(st.st_mode))
        status = load_machine(t, NULL);
    else if ((status = tool_read(t, t->root, &in)) == TOOL_OK) {
        status = in.kind == PVN_TOPO_INPUT_NCCL_XML ? load_xml(t, &in) : load_machine(t, &in);
        pvn_topo_input_free(&in);
    }
    return status == TOOL_OK ? order_by_number(t) : status;
}

void tool_unload(struct tool *t)
{
    bool owned = t->pairs && t->pairs->owns;
    pvn_topo_pairs_free(t->pairs);
    if (!owned)
        pvn_topo_ntree_free(t->tree);
    pvn_topo_ndoc_free(t->doc);
    pvn_topo_ndoc_free(t->file);
    free(t->net_order);
    free(t->gpu_order);
    pvn_topo_nics_free(&t->nics);
    pvn_topo_look_free(&t->look);
    pvn_topo_look_free(&t->look_again);
    pvn_topo_free(t->topo);
}

int tool_need_machine(const struct tool *t, const char *command)
{
    if (t->topo)
        return TOOL_OK;
    tool_error(
        "%s needs a machine (a directory or a tar made by pvn-topo gather); %s is an NCCL file, "
        "which holds only the tree",
        command, t->root);
    return TOOL_USAGE;
}
