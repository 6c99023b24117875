/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* JSON for programs, as topo/pvn-topo.schema.json describes it. The version increases if a change
 * would break a reader of the old one. */
#include "topo/tool/base/json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugin/base/version.h"

#define JSON_FORMAT 1

/* A text as JSON. The machine's texts may hold any byte; JSON allows only UTF-8. */
static json_t *text(const char *s)
{
    json_t *value = json_string(s);
    if (value)
        return value;
    char clean[1024];
    size_t n = 0;
    for (; s[n] && n < sizeof(clean) - 1; n++)
        clean[n] = (unsigned char)s[n] < 0x80 ? s[n] : '?';
    clean[n] = '\0';
    return json_string(clean);
}

json_t *json_text(const char *s)
{
    return text(s);
}

static json_t *text_or_null(const char *s)
{
    return s[0] ? text(s) : json_null();
}

static json_t *known(int value)
{
    return value == PVN_TOPO_UNKNOWN ? json_null() : json_integer(value);
}

static json_t *tri(enum pvn_topo_tri value)
{
    return value == PVN_TOPO_TRI_UNKNOWN ? json_null() : json_boolean(value == PVN_TOPO_TRI_YES);
}

static json_t *hex(int value, int digits)
{
    char buf[24];
    if (value == PVN_TOPO_UNKNOWN)
        return json_null();
    snprintf(buf, sizeof(buf), "0x%0*x", digits, (unsigned)value);
    return json_string(buf);
}

static json_t *head(const char *kind)
{
    json_t *o = json_object();
    json_object_set_new(o, "format", json_string("pvn-topo"));
    json_object_set_new(o, "format_version", json_integer(JSON_FORMAT));
    json_object_set_new(o, "tool_version", json_string(pvn_version()));
    json_object_set_new(o, "kind", json_string(kind));
    return o;
}

/* Prints a document. With --watch each document is one line. */
static int print_with(const struct tool *t, json_t *o, size_t digits)
{
    size_t layout = t->watch_s > 0 ? JSON_COMPACT : JSON_INDENT(2);
    int err = json_dumpf(o, t->out, layout | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(digits));
    fputc('\n', t->out);
    json_decref(o);
    if (err == 0)
        return TOOL_OK;
    tool_error("the JSON text could not be made");
    return TOOL_INPUT;
}

static int print(const struct tool *t, json_t *o)
{
    return print_with(t, o, 6);
}

static json_t *capability(enum pvn_topo_cap cap, const char *present)
{
    static const char *const names[] = {
        [PVN_TOPO_CAP_UNKNOWN] = "unknown",
        [PVN_TOPO_CAP_NOT_READABLE] = "not readable",
        [PVN_TOPO_CAP_ABSENT] = "absent",
    };
    return json_string(cap == PVN_TOPO_CAP_PRESENT ? present : names[cap]);
}

/* Puts facts of config space. */
static void put_config(json_t *o, const struct pvn_topo_pci *f)
{
    const struct pvn_topo_pci_config *c = &f->config;
    bool pcie = c->pcie == PVN_TOPO_CAP_PRESENT && c->mps != PVN_TOPO_UNKNOWN;
    json_object_set_new(o, "acs", capability(c->acs, c->acs_ctl ? "on" : "off"));
    json_object_set_new(o, "acs_capability",
                        hex(c->acs == PVN_TOPO_CAP_PRESENT ? c->acs_cap : PVN_TOPO_UNKNOWN, 2));
    json_object_set_new(o, "acs_control",
                        hex(c->acs == PVN_TOPO_CAP_PRESENT ? c->acs_ctl : PVN_TOPO_UNKNOWN, 2));
    json_object_set_new(o, "ats", capability(c->ats, c->ats_enabled ? "on" : "off"));
    json_object_set_new(o, "relaxed_ordering",
                        pcie ? json_boolean(c->relaxed_ordering) : json_null());
    json_object_set_new(o, "max_payload", pcie ? known(c->mps) : json_null());
    json_object_set_new(o, "max_read_request", pcie ? known(c->mrrs) : json_null());
    json_object_set_new(o, "virtual_functions", known(f->num_vfs));
}

static json_t *address_of(const struct pvn_topo *topo, int pci)
{
    return pci >= 0 ? text(topo->pci[pci].bdf) : json_null();
}

static json_t *interface(const struct pvn_topo *topo, const struct pvn_topo_net *net)
{
    json_t *o = json_object();
    json_object_set_new(o, "name", text(net->name));
    json_object_set_new(o, "pci", address_of(topo, net->pci));
    json_object_set_new(o, "driver", text_or_null(net->driver));
    json_object_set_new(o, "state", text_or_null(net->operstate));
    json_object_set_new(o, "mtu", known(net->mtu));
    json_object_set_new(o, "speed_mbits", known(net->speed_mbps));
    json_object_set_new(o, "master",
                        net->master >= 0 ? text(topo->nets[net->master].name) : json_null());
    return o;
}

static json_t *gid_entry(const struct pvn_topo_gid *gid)
{
    static const char *const types[] = {[PVN_TOPO_GID_IB] = "IB",
                                        [PVN_TOPO_GID_ROCE_V1] = "RoCE v1",
                                        [PVN_TOPO_GID_ROCE_V2] = "RoCE v2"};
    char raw[40] = "";
    json_t *o = json_object();
    for (int i = 0; i < 16; i++)
        snprintf(raw + strlen(raw), sizeof(raw) - strlen(raw), "%s%02x",
                 i > 0 && i % 2 == 0 ? ":" : "", gid->raw[i]);
    json_object_set_new(o, "index", json_integer(gid->index));
    json_object_set_new(o, "gid", json_string(raw));
    json_object_set_new(
        o, "type", gid->type == PVN_TOPO_GID_UNKNOWN ? json_null() : json_string(types[gid->type]));
    json_object_set_new(o, "interface", text_or_null(gid->ndev));
    return o;
}

static json_t *rdma_port(const struct pvn_topo *topo, const struct pvn_topo_rdma_port *port)
{
    json_t *o = json_object(), *gids = json_array();
    char why[256];
    bool usable;
    int pick = pvn_topo_gid_pick(port, &usable, why, sizeof(why));
    json_object_set_new(o, "port", json_integer(port->num));
    json_object_set_new(o, "state", text_or_null(port->state_text));
    json_object_set_new(o, "rate_mbits", known(port->rate_mbps));
    json_object_set_new(
        o, "link_layer",
        port->layer == PVN_TOPO_LINK_UNKNOWN
            ? json_null()
            : json_string(port->layer == PVN_TOPO_LINK_ETHERNET ? "Ethernet" : "InfiniBand"));
    json_object_set_new(o, "interface",
                        port->netdev >= 0 ? text(topo->nets[port->netdev].name) : json_null());
    for (int i = 0; i < port->ngids; i++)
        json_array_append_new(gids, gid_entry(&port->gids[i]));
    json_object_set_new(o, "gids", gids);
    json_object_set_new(o, "gid_pick", pick >= 0 ? json_integer(pick) : json_null());
    return o;
}

static json_t *rdma_device(const struct pvn_topo *topo, const struct pvn_topo_rdma *r)
{
    json_t *o = json_object(), *ports = json_array();
    json_object_set_new(o, "name", text(r->name));
    json_object_set_new(o, "pci", address_of(topo, r->pci));
    json_object_set_new(o, "driver", text_or_null(r->driver));
    json_object_set_new(o, "firmware", text_or_null(r->fw_ver));
    json_object_set_new(o, "pvrdma", json_boolean(r->kind == PVN_TOPO_RDMA_PVRDMA));
    for (int i = 0; i < r->nports; i++)
        json_array_append_new(ports, rdma_port(topo, &r->ports[i]));
    json_object_set_new(o, "ports", ports);
    return o;
}

static json_t *pci_function(const struct tool *t, int index)
{
    const struct pvn_topo_pci *f = &t->topo->pci[index];
    json_t *o = json_object();
    json_object_set_new(o, "address", text(f->bdf));
    json_object_set_new(o, "kind", text(pvn_topo_pci_kind_name(f->kind)));
    json_object_set_new(o, "parent",
                        f->parent >= 0 ? text(t->topo->pci[f->parent].bdf) : json_null());
    json_object_set_new(o, "root", f->root >= 0 ? text(t->topo->roots[f->root].name) : json_null());
    json_object_set_new(o, "class", hex(f->class_code, 6));
    json_object_set_new(o, "vendor", hex(f->vendor, 4));
    json_object_set_new(o, "device", hex(f->device, 4));
    json_object_set_new(o, "subsystem_vendor", hex(f->subvendor, 4));
    json_object_set_new(o, "subsystem_device", hex(f->subdevice, 4));
    json_object_set_new(o, "driver", text_or_null(f->driver));
    json_object_set_new(o, "numa_node", known(f->numa));
    json_object_set_new(o, "iommu_group", known(f->iommu_group));
    json_object_set_new(o, "link_mts", known(f->link.speed_mts));
    json_object_set_new(o, "link_max_mts", known(f->link.speed_max_mts));
    json_object_set_new(o, "link_width", known(f->link.width));
    json_object_set_new(o, "link_max_width", known(f->link.width_max));
    json_object_set_new(o, "invented", json_boolean(f->flags & PVN_TOPO_PCI_INVENTED));
    json_object_set_new(o, "physical_function", address_of(t->topo, f->physfn));
    put_config(o, f);
    return o;
}

static void put_notes(json_t *o, const struct pvn_topo *topo)
{
    json_t *notes = json_array();
    for (int i = 0; topo && i < topo->nnotes; i++) {
        json_t *note = json_object();
        json_object_set_new(note, "where", text(topo->notes[i].where));
        json_object_set_new(note, "text", text(topo->notes[i].text));
        json_array_append_new(notes, note);
    }
    json_object_set_new(o, "notes", notes);
}

static json_t *machine(const struct tool *t)
{
    const struct pvn_topo *topo = t->topo;
    json_t *o = json_object(), *numas = json_array(), *pci = json_array();
    json_t *nets = json_array(), *rdmas = json_array();
    json_object_set_new(o, "source", text(topo->source));
    json_object_set_new(o, "kernel", text_or_null(topo->kernel));
    json_object_set_new(o, "cpu", text_or_null(topo->cpu.model_name));
    json_object_set_new(o, "hypervisor", text(pvn_topo_hypervisor_name(topo->guest.hypervisor)));
    json_object_set_new(o, "guest", json_boolean(pvn_topo_is_guest(topo)));
    json_object_set_new(o, "nvidia_driver", text_or_null(topo->nvidia.version));
    json_object_set_new(o, "nvidia_peermem", tri(topo->nvidia.peermem));
    for (int i = 0; i < topo->nnumas; i++) {
        json_t *numa = json_object();
        json_object_set_new(numa, "id", json_integer(topo->numas[i].id));
        json_object_set_new(numa, "cpus", text(topo->numas[i].cpulist));
        json_array_append_new(numas, numa);
    }
    json_object_set_new(o, "numa_nodes", numas);
    for (int i = 0; i < topo->npci; i++)
        json_array_append_new(pci, pci_function(t, i));
    json_object_set_new(o, "pci", pci);
    for (int i = 0; i < topo->nnets; i++)
        json_array_append_new(nets, interface(topo, &topo->nets[i]));
    json_object_set_new(o, "interfaces", nets);
    for (int i = 0; i < topo->nrdmas; i++)
        json_array_append_new(rdmas, rdma_device(topo, &topo->rdmas[i]));
    json_object_set_new(o, "rdma", rdmas);
    put_notes(o, topo);
    return o;
}

static json_t *gpus(const struct tool *t)
{
    json_t *list = json_array();
    for (int g = 0; g < t->tree->n_gpus; g++) {
        const struct pvn_topo_nnode *n = tool_gpu(t, g);
        char label[16], what[160];
        json_t *o = json_object();
        json_object_set_new(o, "name", json_string(tool_gpu_label(t, g, label)));
        json_object_set_new(o, "address", text(n->busid));
        json_object_set_new(
            o, "numa", known(tool_numa(t, pvn_topo_pairs_gpu_pci(t->pairs, g), t->tree->gpus[g])));
        json_object_set_new(o, "model", text_or_null(tool_gpu_what(t, g, what, sizeof(what))));
        json_object_set_new(o, "link_gbytes", json_real(t->tree->nodes[n->up].up_bw));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *nets(const struct tool *t)
{
    json_t *list = json_array();
    for (int i = 0; i < t->tree->n_nets; i++) {
        const struct pvn_topo_nnode *n = tool_net(t, i);
        char label[16], guid[24];
        json_t *o = json_object();
        snprintf(guid, sizeof(guid), "0x%llx", (unsigned long long)n->net.guid);
        json_object_set_new(o, "name", json_string(tool_net_label(t, i, label)));
        json_object_set_new(o, "device", text(n->net.name));
        json_object_set_new(o, "address", text_or_null(tool_net_busid(t, i)));
        json_object_set_new(
            o, "numa", known(tool_numa(t, pvn_topo_pairs_net_pci(t->pairs, i), t->tree->nets[i])));
        json_object_set_new(o, "speed_mbits",
                            tool_net_mbps(t, i) > 0 ? json_integer(tool_net_mbps(t, i))
                                                    : json_null());
        json_object_set_new(o, "guid", json_string(guid));
        json_object_set_new(o, "port", json_integer(n->net.port));
        json_object_set_new(o, "rail", n->net.rail >= 0 ? json_integer(n->net.rail) : json_null());
        const struct pvn_topo_nic *nic = pvn_topo_pairs_nic(t->pairs, i);
        if (nic) {
            json_object_set_new(o, "up", json_boolean(nic->up));
            json_object_set_new(o, "pci_path", nic->pci_path ? text(nic->pci_path) : json_null());
            json_object_set_new(o, "pci_path_note", text_or_null(nic->path_note));
        }
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *distances(const struct tool *t)
{
    json_t *list = json_array();
    for (int g = 0; g < t->tree->n_gpus; g++) {
        for (int i = 0; i < t->tree->n_nets; i++) {
            const struct pvn_topo_npath_info *path = pvn_topo_ntree_gpu_net(t->tree, g, i);
            const struct pvn_topo_nroute *route = pvn_topo_ntree_route(t->tree, g, i);
            struct pvn_topo_distance d;
            enum pvn_topo_smi_class smi = tool_smi(t, pvn_topo_pairs_gpu_pci(t->pairs, g),
                                                   pvn_topo_pairs_net_pci(t->pairs, i), &d);
            char label[16];
            json_t *o = json_object();
            json_object_set_new(o, "gpu", json_string(tool_gpu_label(t, g, label)));
            json_object_set_new(o, "nic", json_string(tool_net_label(t, i, label)));
            json_object_set_new(o, "nccl", json_string(pvn_topo_npath_name(path->type)));
            json_object_set_new(o, "nccl_gbytes", json_real(path->bw));
            json_object_set_new(o, "nccl_used", json_string(pvn_topo_npath_name(route->type)));
            json_object_set_new(o, "nccl_used_gbytes", json_real(route->bw));
            json_object_set_new(o, "nvidia_smi",
                                smi == PVN_TOPO_SMI_UNKNOWN
                                    ? json_null()
                                    : json_string(pvn_topo_smi_class_name(smi)));
            json_object_set_new(o, "hidden", json_boolean(d.trust == PVN_TOPO_TRUST_HIDDEN));
            json_array_append_new(list, o);
        }
    }
    return list;
}

static json_t *verdict(const struct tool *t, int gpu, int net)
{
    struct pvn_topo_gdr gdr;
    json_t *o = json_object(), *steps = json_array();
    pvn_topo_gdr_judge(t->pairs, gpu, net, &gdr);
    json_object_set_new(o, "verdict", text(gdr.verdict));
    json_object_set_new(o, "refused", json_boolean(gdr.first_no >= 0));
    for (int i = 0; i < PVN_TOPO_GDR_CONDITIONS; i++) {
        json_t *step = json_object();
        json_object_set_new(step, "condition", text(gdr.steps[i].title));
        json_object_set_new(step, "result", text(pvn_topo_gdr_result_name(gdr.steps[i].result)));
        json_object_set_new(step, "seen", text(gdr.steps[i].seen));
        json_object_set_new(step, "needed", text_or_null(gdr.steps[i].needed));
        json_object_set_new(step, "remedy", text_or_null(gdr.steps[i].remedy));
        json_array_append_new(steps, step);
    }
    json_object_set_new(o, "conditions", steps);
    return o;
}

static json_t *pair(const struct tool *t, int g)
{
    const struct pvn_topo_pair *p = &t->pairs->list[g];
    char label[16];
    json_t *o = json_object(), *taken = json_array();
    json_object_set_new(o, "gpu", json_string(tool_gpu_label(t, g, label)));
    for (int i = 0; i < p->n_nccl; i++)
        json_array_append_new(taken, json_string(tool_net_label(t, p->nccl[i], label)));
    json_object_set_new(o, "nccl", taken);
    json_object_set_new(o, "nccl_why", text(p->nccl_why));
    json_object_set_new(o, "advice",
                        p->advice >= 0 ? json_string(tool_net_label(t, p->advice, label))
                                       : json_null());
    json_t *more = json_array();
    for (int i = 0; i < p->n_more; i++)
        json_array_append_new(more, json_string(tool_net_label(t, p->more[i], label)));
    json_object_set_new(o, "advice_more_ports", more);
    json_object_set_new(o, "advice_why", text(p->advice_why));
    if (p->advice >= 0)
        json_object_set_new(o, "gpudirect", verdict(t, g, p->advice));
    return o;
}

static json_t *pair_list(const struct tool *t)
{
    json_t *list = json_array();
    for (int g = 0; g < t->pairs->n; g++)
        json_array_append_new(list, pair(t, g));
    return list;
}

int json_machine(const struct tool *t)
{
    json_t *o = head("machine");
    json_object_set_new(o, "machine", t->topo ? machine(t) : json_null());
    json_object_set_new(o, "gpus", gpus(t));
    json_object_set_new(o, "nics", nets(t));
    json_object_set_new(o, "distances", distances(t));
    json_object_set_new(o, "pairs", pair_list(t));
    json_object_set_new(o, "note", text_or_null(t->pairs->note));
    return print(t, o);
}

/* Puts the virtual devices that NCCL would let the plugin make, each as its members' names. */
static void put_fused(const struct tool *t, json_t *o)
{
    int n = t->tree->n_nets, *group = calloc((size_t)n + 1, sizeof(*group));
    char problem[512] = "";
    json_t *sets = json_array();
    if (!group ||
        pvn_topo_pairs_fusion(t->pairs, PVN_TOPO_FUSION_MAX, group, problem, sizeof(problem)) < 0)
        n = 0;
    for (int first = 0; first < n; first++) {
        json_t *set = json_array();
        for (int i = 0; i < n; i++)
            if (group[i] == first)
                json_array_append_new(set, text(tool_net(t, i)->net.name));
        if (json_array_size(set) > 1)
            json_array_append(sets, set);
        json_decref(set);
    }
    free(group);
    json_object_set_new(o, "fused", sets);
    json_object_set_new(o, "force_merge_problem", text_or_null(problem));
}

/* Puts NICs that are down, each with the GPUs whose nearest NIC it would be if it were up. */
static void put_down(const struct tool *t, json_t *o)
{
    struct pvn_topo_nics down;
    json_t *list = json_array();
    char label[16];
    if (tool_list_down(t, &down) < 0)
        down.n = 0;
    for (int i = 0; i < down.n; i++) {
        json_t *nic = json_object(), *near = json_array();
        struct tool_down d;
        for (int g = 0; g < t->pairs->n; g++)
            if (tool_find_down(t, g, down.list[i].name, &d) && d.nearest)
                json_array_append_new(near, json_string(tool_gpu_label(t, g, label)));
        json_object_set_new(nic, "nic", text(down.list[i].name));
        json_object_set_new(nic, "nearest_to", near);
        json_array_append_new(list, nic);
    }
    pvn_topo_nics_free(&down);
    json_object_set_new(o, "down", list);
}

int json_pairs(const struct tool *t)
{
    json_t *o = head("pairs");
    json_object_set_new(o, "gpus", gpus(t));
    json_object_set_new(o, "nics", nets(t));
    json_object_set_new(o, "pairs", pair_list(t));
    put_fused(t, o);
    put_down(t, o);
    json_object_set_new(o, "optimum_proven", json_boolean(t->pairs->exact));
    json_object_set_new(o, "optimum_unknown", text_or_null(t->pairs->unknown));
    json_object_set_new(o, "note", text_or_null(t->pairs->note));
    put_notes(o, t->topo);
    return print(t, o);
}

int json_matrix(const struct tool *t)
{
    json_t *o = head("matrix");
    json_object_set_new(o, "gpus", gpus(t));
    json_object_set_new(o, "nics", nets(t));
    json_object_set_new(o, "distances", distances(t));
    put_notes(o, t->topo);
    return print(t, o);
}

int json_why_down(const struct tool *t, int gpu, const struct tool_down *nic)
{
    json_t *o = head("why");
    char label[16];
    json_object_set_new(o, "gpu", json_string(tool_gpu_label(t, gpu, label)));
    json_object_set_new(o, "nic", text(nic->name));
    json_object_set_new(o, "nic_down", json_true());
    json_object_set_new(o, "nvidia_smi",
                        nic->distance == PVN_TOPO_SMI_UNKNOWN
                            ? json_null()
                            : json_string(pvn_topo_smi_class_name(nic->distance)));
    json_object_set_new(o, "nearest_if_up", json_boolean(nic->nearest));
    put_notes(o, t->topo);
    return print(t, o);
}

int json_why(const struct tool *t, int gpu, int net)
{
    json_t *o = head("why"), *hops = json_array();
    int list[256], n = pvn_topo_ntree_hops(t->tree, gpu, net, list, 256);
    char label[16];
    struct pvn_topo_distance d;
    json_object_set_new(o, "gpu", json_string(tool_gpu_label(t, gpu, label)));
    json_object_set_new(o, "nic", json_string(tool_net_label(t, net, label)));
    json_object_set_new(
        o, "nccl",
        json_string(pvn_topo_npath_name(pvn_topo_ntree_gpu_net(t->tree, gpu, net)->type)));
    json_object_set_new(o, "nccl_gbytes", json_real(pvn_topo_ntree_gpu_net(t->tree, gpu, net)->bw));
    json_object_set_new(
        o, "nccl_used",
        json_string(pvn_topo_npath_name(pvn_topo_ntree_route(t->tree, gpu, net)->type)));
    tool_smi(t, pvn_topo_pairs_gpu_pci(t->pairs, gpu), pvn_topo_pairs_net_pci(t->pairs, net), &d);
    json_object_set_new(
        o, "nvidia_smi",
        d.smi == PVN_TOPO_SMI_UNKNOWN ? json_null() : json_string(pvn_topo_smi_class_name(d.smi)));
    json_object_set_new(o, "hidden", json_boolean(d.trust == PVN_TOPO_TRUST_HIDDEN));
    for (int i = 0; i < n; i++) {
        const struct pvn_topo_nnode *node = &t->tree->nodes[list[i]];
        char numa[24];
        snprintf(numa, sizeof(numa), "numa:%d", node->kind == PVN_TOPO_NN_CPU ? node->cpu.numa : 0);
        if (node->kind != PVN_TOPO_NN_GPU)
            json_array_append_new(hops, text(node->kind == PVN_TOPO_NN_CPU   ? numa
                                             : node->kind == PVN_TOPO_NN_NET ? node->net.name
                                                                             : node->busid));
    }
    json_object_set_new(o, "path", hops);
    json_object_set_new(o, "choice", pair(t, gpu));
    json_object_set_new(o, "gpudirect", verdict(t, gpu, net));
    put_notes(o, t->topo);
    return print(t, o);
}

int json_compare(const struct tool *t, json_t *odd, json_t *not_compared, json_t *rows)
{
    json_t *o = head("compare");
    json_object_set_new(o, "odd", odd);
    json_object_set_new(o, "not_compared", not_compared);
    json_object_set_new(o, "checks", rows);
    return print(t, o);
}

int json_check(const struct tool *t, const struct pvn_topo_checks *checks, json_t *adapters,
               json_t *facts)
{
    json_t *o = head("check"), *rows = json_array();
    char host[256] = "";
    if (t->topo->live && gethostname(host, sizeof(host) - 1) == 0)
        json_object_set_new(o, "host", text(host));
    json_object_set_new(o, "facts", facts);
    for (int i = 0; i < checks->n; i++) {
        const struct pvn_topo_check *c = &checks->rows[i];
        json_t *row = json_object();
        json_object_set_new(row, "check", text(c->id));
        json_object_set_new(row, "level", text(pvn_topo_level_name(c->level)));
        json_object_set_new(row, "subject", text(c->subject));
        json_object_set_new(row, "text", text(c->text));
        json_object_set_new(row, "remedy", text_or_null(c->remedy));
        json_array_append_new(rows, row);
    }
    json_object_set_new(o, "checks", rows);
    json_object_set_new(o, "adapters", adapters);
    return print(t, o);
}

int json_diff(const struct tool *t, const char *a, const char *b, json_t *differences)
{
    json_t *o = head("diff");
    json_object_set_new(o, "a", text(a));
    json_object_set_new(o, "b", text(b));
    json_object_set_new(o, "differences", differences);
    return print(t, o);
}

int json_params(const struct tool *t, json_t *list, json_t *variables)
{
    json_t *o = head("params");
    json_object_set_new(o, "params", list);
    json_object_set_new(o, "variables", variables);
    return print(t, o);
}

int json_stat(const struct tool *t, json_t *processes, json_t *awaited, json_t *adapters,
              json_t *hosts, json_t *unreadable)
{
    json_t *o = head("stat");
    if (hosts)
        json_object_set_new(o, "hosts", hosts);
    if (json_array_size(unreadable) > 0)
        json_object_set(o, "unreadable", unreadable);
    json_decref(unreadable);
    json_object_set_new(o, "awaited", awaited);
    json_object_set_new(o, "processes", processes);
    json_object_set_new(o, "adapters", adapters);
    if (t->watch_s > 0)
        json_object_set_new(o, "time", json_integer((json_int_t)time(NULL)));
    return print_with(t, o, 15); /* ages in microseconds */
}

int json_lint(const struct tool *t, const char *name, const struct pvn_topo_lint *lint)
{
    json_t *o = head("lint"), *rows = json_array();
    json_object_set_new(o, "file", text(name));
    json_object_set_new(o, "rules", text(lint->reader->name));
    for (int i = 0; i < lint->n; i++) {
        const struct pvn_topo_lint_finding *f = &lint->findings[i];
        json_t *row = json_object();
        json_object_set_new(row, "rule", text(f->rule));
        json_object_set_new(row, "level", text(pvn_topo_lint_level_name(f->level)));
        json_object_set_new(row, "line", f->line > 0 ? json_integer(f->line) : json_null());
        json_object_set_new(row, "count", json_integer(f->count));
        json_object_set_new(row, "text", text(f->what));
        json_object_set_new(row, "remedy", text(f->remedy));
        json_array_append_new(rows, row);
    }
    json_object_set_new(o, "findings", rows);
    return print(t, o);
}
