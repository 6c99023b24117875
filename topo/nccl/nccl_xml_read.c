/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/nccl/nccl_xml.h"
#include "topo/nccl/xml_position.h"

#include <errno.h>
#include <expat.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    XML_Parser parser;
    struct pvn_topo_ndoc *doc;
    struct pvn_topo_ndoc_node *open[PVN_TOPO_NDOC_MAX_DEPTH]; /* the element and its parents */
    int depth;
    int skipping; /* depth below an ignored element, 0 outside */
    int failed;   /* negative errno of the first failure */
    struct pvn_topo_xml_error *err;
};

static void fail_at(struct reader *r, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fail_at(struct reader *r, int code, const char *format, ...)
{
    if (r->failed)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(r->err->text, sizeof(r->err->text), format, args);
    va_end(args);
    r->err->line = pvn_topo_xml_line(r->parser);
    r->err->column = pvn_topo_xml_column(r->parser);
    r->failed = code;
    XML_StopParser(r->parser, XML_FALSE);
}

enum { NCCL = 1, RCCL = 2, BOTH = NCCL | RCCL };

/* The children that NCCL's and RCCL's loaders accept (src/graph/xml.cc ncclTopoXmlLoad*), and the
 * attribute without which they stop. Any other element is skipped with everything below it. */
static const struct {
    const char *parent, *name, *required;
    int readers;
} nesting[] = {
    {"system", "cpu", "numaid", BOTH},  {"cpu", "pci", "busid", BOTH},
    {"cpu", "nic", NULL, BOTH},         {"pci", "pci", "busid", BOTH},
    {"pci", "gpu", NULL, BOTH},         {"pci", "nic", NULL, BOTH},
    {"pci", "pcilink", "target", BOTH}, {"gpu", "nvlink", "target", NCCL},
    {"gpu", "c2c", NULL, NCCL},         {"gpu", "xgmi", "target", RCCL},
    {"nic", "net", "name", BOTH},
};

static bool known(const struct reader *r, const char *parent, const char *name,
                  const char **required)
{
    *required = NULL;
    for (size_t i = 0; i < sizeof(nesting) / sizeof(nesting[0]); i++) {
        if ((nesting[i].readers & (r->doc->rccl ? RCCL : NCCL)) &&
            strcmp(nesting[i].parent, parent) == 0 && strcmp(nesting[i].name, name) == 0) {
            *required = nesting[i].required;
            return true;
        }
    }
    return false;
}

static void note_ignored(struct reader *r, const char *parent, const char *name)
{
    int at = r->doc->n_ignored++;
    if (at >= (int)(sizeof(r->doc->ignored) / sizeof(r->doc->ignored[0])))
        return;
    r->doc->ignored[at].line = pvn_topo_xml_line(r->parser);
    snprintf(r->doc->ignored[at].name, sizeof(r->doc->ignored[at].name), "%s", name);
    snprintf(r->doc->ignored[at].parent, sizeof(r->doc->ignored[at].parent), "%s", parent);
}

static bool root_ok(struct reader *r, const char *name, const char **attrs)
{
    const char *version = NULL;
    if (strcmp(name, "graphs") == 0) {
        r->err->kind = PVN_TOPO_XML_GRAPHS;
        fail_at(r, -EINVAL,
                "this is an NCCL graph file (<graphs>), not a topology: NCCL_GRAPH_FILE takes it; "
                "NCCL_TOPO_FILE needs <system version=\"1\">");
        return false;
    }
    if (strcmp(name, "system") != 0) {
        r->err->kind = PVN_TOPO_XML_OTHER;
        fail_at(r, -EINVAL,
                "the outermost element is <%.40s>: a topology starts with <system version=\"1\">%s",
                name,
                strcmp(name, "topology") == 0 ? " (this looks like a file of hwloc's lstopo)" : "");
        return false;
    }
    for (int i = 0; attrs[i]; i += 2)
        if (strcmp(attrs[i], "version") == 0)
            version = attrs[i + 1];
    if (!version) {
        fail_at(r, -EINVAL, "<system> has no version: write <system version=\"1\">");
        return false;
    }
    long number = strtol(version, NULL, 0);
    if (number != 1 && number != 2) {
        fail_at(r, -EINVAL,
                "<system version=\"%.20s\">: NCCL knows only version 1, AMD's RCCL only 2",
                version);
        return false;
    }
    r->doc->rccl = r->err->rccl = number == 2;
    return true;
}

static void XMLCALL on_start(void *user, const char *name, const char **attrs)
{
    struct reader *r = user;
    const char *required = NULL;
    struct pvn_topo_ndoc_node *parent = r->depth ? r->open[r->depth - 1] : NULL;

    if (r->failed)
        return;
    if (r->skipping || (parent && !known(r, parent->name, name, &required))) {
        if (r->skipping++ == 0)
            note_ignored(r, parent->name, name);
        return;
    }
    if (!parent && !root_ok(r, name, attrs))
        return;
    if (r->depth == PVN_TOPO_NDOC_MAX_DEPTH || r->doc->n_nodes == PVN_TOPO_XML_MAX_NODES) {
        fail_at(r, -EFBIG, "more than %d %s: no machine looks like this",
                r->depth == PVN_TOPO_NDOC_MAX_DEPTH ? PVN_TOPO_NDOC_MAX_DEPTH
                                                    : PVN_TOPO_XML_MAX_NODES,
                r->depth == PVN_TOPO_NDOC_MAX_DEPTH ? "levels" : "elements");
        return;
    }
    struct pvn_topo_ndoc_node *node = pvn_topo_ndoc_add(r->doc, parent, name);
    if (!node)
        goto no_memory;
    node->line = pvn_topo_xml_line(r->parser);
    for (int i = 0; attrs[i]; i += 2)
        if (pvn_topo_ndoc_set(node, attrs[i], attrs[i + 1]) < 0)
            goto no_memory;
    if (required && !pvn_topo_ndoc_get(node, required)) {
        fail_at(r, -EINVAL, "<%s> has no %s: %s stops at such an element", name, required,
                pvn_topo_nreader_of(r->doc->rccl)->name);
        return;
    }
    r->open[r->depth++] = node;
    return;
no_memory:
    fail_at(r, -ENOMEM, "out of memory");
}

static void XMLCALL on_end(void *user, const char *name)
{
    struct reader *r = user;
    if (r->skipping)
        r->skipping--;
    else if (r->depth)
        r->depth--;
}

static void XMLCALL on_text(void *user, const char *text, int len)
{
    struct reader *r = user;
    for (int i = 0; i < len; i++) {
        if (!strchr(" \t\r\n", text[i])) {
            fail_at(r, -EINVAL,
                    "text between the elements (\"%.*s\"): a topology has only elements",
                    len - i > 20 ? 20 : len - i, text + i);
            return;
        }
    }
}

/* Refuses DTDs. Entities and DTDs have no use here, and NCCL's own reader supports neither. */
static void XMLCALL on_doctype(void *user, const char *name, const char *system_id,
                               const char *public_id, int internal)
{
    if (strcmp(name, "topology") == 0)
        fail_at(
            user, -EINVAL,
            "this is hwloc's XML (lstopo), which lacks what NCCL goes by; give the directory or "
            "tar of the machine, or NCCL's XML");
    else
        fail_at(user, -EINVAL,
                "<!DOCTYPE %.40s>: a topology file has no document type; remove that line", name);
}

int pvn_topo_nccl_xml_parse(const char *text, size_t len, struct pvn_topo_ndoc **doc,
                            struct pvn_topo_xml_error *err)
{
    struct reader r = {.err = err};
    *doc = NULL;
    memset(err, 0, sizeof(*err));
    err->kind = PVN_TOPO_XML_TOPOLOGY;
    if (len > PVN_TOPO_XML_MAX_BYTES) {
        snprintf(err->text, sizeof(err->text), "%zu bytes: a topology file has at most %u", len,
                 PVN_TOPO_XML_MAX_BYTES);
        return -EFBIG;
    }
    r.doc = pvn_topo_ndoc_new();
    r.parser = XML_ParserCreate(NULL);
    if (!r.doc || !r.parser) {
        r.failed = -ENOMEM;
        snprintf(err->text, sizeof(err->text), "out of memory");
        goto out;
    }
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_start, on_end);
    XML_SetCharacterDataHandler(r.parser, on_text);
    XML_SetStartDoctypeDeclHandler(r.parser, on_doctype);
    if (XML_Parse(r.parser, text, (int)len, 1) != XML_STATUS_OK)
        fail_at(&r, -EINVAL, "not well-formed XML: %s%s",
                XML_ErrorString(XML_GetErrorCode(r.parser)),
                len == 0 ? " (the file is empty)" : "");
out:
    if (r.parser)
        XML_ParserFree(r.parser);
    if (r.failed)
        pvn_topo_ndoc_free(r.doc);
    else
        *doc = r.doc;
    return r.failed;
}
