// The man page: the prose below, and the commands and options from the tree.
#include "gateway/cli/command_tree.h"

namespace isogate::cli {
namespace {

std::string roff(const std::string& text) {
  std::string safe;
  for (char c : text) {
    if (c == '\\')
      safe += "\\e";
    else if (c == '-')
      safe += "\\-";
    else if (c == '\'' && (safe.empty() || safe.back() == '\n'))
      safe += "\\(aq";
    else
      safe += c;
  }
  return safe.starts_with('.') ? "\\&" + safe : safe;
}

std::string term(const OptionInfo& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "\\fB" : "\\fR, \\fB") + roff(name);
  if (option.names.empty()) return "\\fI" + roff(option.value) + "\\fR" + (option.repeats ? " \\&..." : "");
  text += "\\fR";
  if (!option.value.empty()) text += " \\fI" + roff(option.value) + "\\fR";
  return text;
}

std::string options_of(const CommandInfo& command, bool with_help) {
  std::string text;
  for (const OptionInfo& option : command.options) {
    bool help = !option.names.empty() && option.names.back() == "--help";
    if (help && !with_help) continue;
    text += ".TP\n" + term(option) + "\n" + roff(option.brief) +
            (option.repeats && !option.names.empty() ? " (repeatable)" : "") + "\n";
  }
  return text;
}

std::string commands_of(const CommandInfo& command, const std::string& path) {
  std::string text;
  for (const CommandInfo& inner : command.commands) {
    std::string name = path + " " + inner.name;
    text += ".SS \"" + roff(name) + "\"\n" + roff(inner.brief) + ".\n" + options_of(inner, false);
    text += commands_of(inner, name);
  }
  return text;
}

constexpr const char* kHead = R"(.TH ISOGATE 1 "" "isogate @version@" "User Commands"
.SH NAME
isogate \- run agents' commands in a sandbox chosen by probing, failing closed
.SH SYNOPSIS
.B isogate serve
.RB [ \-\-config
.IR FILE ]
.RI [ options ]
.br
.B isogate exec
.RI [ options ]
.B \-\-
.I program
.RI [ argument \ ...]
.br
.B isogate exec
.RI [ options ]
.B \-c
.I command
.br
.B isogate shell
.RI [ options ]
.RI [ agent ]
.br
.B isogate attach\fR|\fBlogs\fR|\fBkill
.RI [ options ]
.I exec_id
.br
.B isogate read\fR|\fBwrite\fR|\fBls\fR|\fBrm\fR|\fBwatch
.RI [ options ]
.I path
.br
.B isogate cp
.RI [ options ]
.I source destination
.br
.B isogate port\-forward
.RI [ options ]
.I agent
.I ports
.br
.B isogate mcp
.B \-\-stdio
.RI [ options ]
.br
.B isogate ps\fR|\fBsandbox\fR|\fBprobe\fR|\fBplugin\fR|\fBconfig\fR|\fBkey\fR|\fBcompletion
.RI [ options ]
.SH DESCRIPTION
.B isogate
is a gateway between agents and the machines that run the agents' commands.
.B isogate serve
runs the gateway; the other commands talk to one, or look at this machine.
When no backend can prove what the policy asks for, nothing runs.
.PP
A command finds its gateway by
.B \-\-url
or
.BR ISOGATE_URL ,
else by the socket
.I isogate.sock
in the state directory, else at 127.0.0.1:9090.
Its key comes from
.B \-\-key\-file
or
.BR ISOGATE_KEY ;
without one, a URL that was named and is on this machine gets that of the file
.I local.key
in the state directory, unless a client certificate is presented.
The socket needs no key.
A key is never given in an argument.
.PP
Ctrl\-C closes the connection; the gateway then kills what the command had started.
.PP
What
.B isogate exec
starts with
.BR \-d ,
.B \-i
or
.B \-t
is long\-lived: it outlives its connection.
While a client is attached without a terminal, Ctrl\-C goes to the program, a second one kills it, and Ctrl\-\e
detaches.
With a terminal all keys go to the program;
.B ~.
at the beginning of a line detaches.
.B isogate attach
goes back to it.
.SH OPTIONS
)";

constexpr const char* kTail = R"(.SH EXIT STATUS
.TP
.B 0
Done.
.B isogate probe\fR:
a backend may serve.
.BR "isogate exec" ,
.B shell
and
.BR attach :
also when they were detached by keys, and the program runs on.
.TP
.B 1
Refused, not found, not valid; no backend may serve; the gateway could not start.
.B isogate cp\fR:
also when something, a symlink or a device, was left out; all else is copied.
.TP
.B 2
The command line makes no sense.
.TP
.B 125
No gateway, or no usable answer: the message names which.
.BR "isogate exec" ,
.B shell
and
.BR attach :
also when the gateway refused, or lost contact with the program, whose outcome is then unknown.
(Where it refuses the sandbox of
.BR "shell \-\-image" ,
the code is 1.)
.TP
.B 130
Interrupted, or detached by a signal.
.TP
.B 141
Nobody reads stdout any more.
.PP
Otherwise
.BR "isogate exec" ,
.B shell
and
.B attach
end with the program's exit code: 128+n for signal n, 124 for a timeout, 137 when it was out of memory,
126 or 127 when it could not be started.
.SH ENVIRONMENT
.TP
.B ISOGATE_URL
The gateway, as
.B \-\-url\fR.
.TP
.B ISOGATE_KEY
The API key.
.TP
.B ISOGATE_CA_FILE
With https, the certificate authorities to trust, as
.B \-\-ca\-file\fR.
.TP
.B ISOGATE_CERT_FILE
With https, the client certificate, as
.B \-\-cert\fR.
.TP
.B ISOGATE_CERT_KEY_FILE
The key of that certificate, as
.B \-\-cert\-key\fR.
.TP
.B ISOGATE_STATE_DIR
The state directory.
.TP
.B ISOGATE_CONFIG
The configuration file.
.PP
Every setting has a variable of its own:
.B isogate config docs
names them.
There is no colour, so
.B NO_COLOR
is always respected.
.SH FILES
.TP
.I /var/lib/isogate
The state directory of root's gateway. Otherwise
.I $XDG_STATE_HOME/isogate
or
.IR ~/.local/state/isogate .
.TP
.I <state\-dir>/isogate.sock
The socket over which the gateway's own user and root need no key.
.TP
.I <state\-dir>/local.key
The key a gateway without configured keys made at its first start.
.SH EXAMPLES
.nf
isogate serve \-\-config /etc/isogate/isogate.yaml
isogate probe
isogate exec \-\- python3 \-c 'print(6 * 7)'
isogate exec \-\-agent alice \-\-timeout 60 \-\-stream \-c 'make test'
isogate exec \-d \-c 'python3 \-m http.server'
isogate shell \-\-rm
isogate write data/input.csv input.csv
isogate read out/report.pdf \-o report.pdf
isogate cp \-r src alice:project
isogate key new
.fi
.SH SEE ALSO
.I docs/http\-api.md
and
.I docs/configuration.md
of the source, and
.B isogate config docs\fR.
)";

}  // namespace

std::string man_page(const CommandInfo& app) {
  std::string head = kHead;
  head.replace(head.find("@version@"), 9, ISOGATE_VERSION);
  return head + options_of(app, true) +
         ".PP\nEvery command takes \\fB\\-h\\fR and \\fB\\-\\-help\\fR.\n.SH COMMANDS\n" +
         commands_of(app, "isogate") + kTail;
}

}  // namespace isogate::cli
