/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Names in files come from other people. Characters that a terminal would interpret are shown, not
 * sent. */
#include <langinfo.h>
#include <stdint.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "topo/tool/base/tool.h"

enum {
    NAME_SHOWN = 64, /* bytes of a net's name; the kernel's have at most 63 */
    VALUE_SHOWN = 256,
};

/* Length of the UTF-8 character at s, 0 if there is none. */
static size_t utf8_length(const unsigned char *s, uint32_t *code)
{
    size_t n = s[0] < 0x80   ? 1
               : s[0] < 0xc2 ? 0
               : s[0] < 0xe0 ? 2
               : s[0] < 0xf0 ? 3
               : s[0] < 0xf5 ? 4
                             : 0;
    *code = n == 1 ? s[0] : n ? s[0] & (0x7fu >> n) : 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    return n;
}

/* True for C0 and C1 controls, and for characters that change the direction of the text. */
static bool obeyed(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200e && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

const char *tool_escape(const char *text, char *buf, size_t size)
{
    bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    const unsigned char *s = (const unsigned char *)text;
    size_t used = 0;
    while (*s) {
        uint32_t code;
        size_t n = utf8_length(s, &code);
        bool plain = n > 0 && !obeyed(code) && (n == 1 || utf8);
        size_t need = plain ? n : 4 * (n ? n : 1);
        /* Leave room for the dots and the NUL. */
        if (used + need + 4 > size) {
            memcpy(buf + used, "...", 3);
            used += 3;
            break;
        }
        for (size_t i = 0; i < (n ? n : 1); i++)
            used += plain ? (size_t)snprintf(buf + used, size - used, "%c", s[i])
                          : (size_t)snprintf(buf + used, size - used, "\\x%02x", s[i]);
        s += n ? n : 1;
    }
    buf[used] = '\0';
    return buf;
}

/* True if names are shown to a person, not passed to a program. */
static bool shows_names(const struct tool *t)
{
    /* XML keeps the original text, and so does JSON unless it goes to a terminal. */
    if (t->format == TOOL_XML || t->format == TOOL_XML_FULL)
        return false;
    return !t->json || t->terminal;
}

int tool_escape_doc(const struct tool *t, struct pvn_topo_ndoc *doc)
{
    char shown[VALUE_SHOWN];
    for (int i = 0; shows_names(t) && i < doc->n_nodes; i++) {
        struct pvn_topo_ndoc_node *node = doc->nodes[i];
        for (int a = 0; a < node->n_attrs; a++) {
            bool name = strcmp(node->attrs[a].key, "name") == 0;
            tool_escape(node->attrs[a].value, shown, name ? NAME_SHOWN : sizeof(shown));
            if (strcmp(shown, node->attrs[a].value) != 0 &&
                pvn_topo_ndoc_set(node, node->attrs[a].key, shown) < 0) {
                tool_error("out of memory");
                return TOOL_INPUT;
            }
        }
    }
    return TOOL_OK;
}

/* Replaces such characters in place, because the model's names cannot grow. */
static void mask(char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || (unsigned char)*name > 0x7e)
            *name = '?';
}

void tool_escape_machine(const struct tool *t, struct pvn_topo *topo)
{
    char shown[VALUE_SHOWN], *copy;
    if (!shows_names(t))
        return;
    for (int i = 0; i < topo->nnets; i++)
        mask(topo->nets[i].name);
    for (int i = 0; i < topo->nrdmas; i++)
        mask(topo->rdmas[i].name);
    if ((copy = strdup(tool_escape(topo->source, shown, sizeof(shown))))) {
        free(topo->source);
        topo->source = copy;
    }
}

void tool_error(const char *format, ...)
{
    char text[1024], shown[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "pvn-topo: %s\n", tool_escape(text, shown, sizeof(shown)));
}
