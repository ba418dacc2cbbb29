// Package ctl writes commands that a person runs in a shell.
package ctl

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
)

// Command returns a command such as rabbitmqctl delete_queue, for a virtual host and with arguments
// that are names or other texts. A shell gives each of them to the program as it is, whatever is in it,
// and the program takes none for a flag. The virtual host is "/" if it is empty, and the command names no
// virtual host then.
func Command(command, vhost string, args ...string) string {
	words := []string{command}
	switch vhost = cmp.Or(vhost, "/"); {
	case strings.HasPrefix(vhost, "-"):
		words = append(words, "--vhost="+Quote(vhost))
	case vhost != "/":
		words = append(words, "-p", Quote(vhost))
	}
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			words = append(words, "--")
			break
		}
	}
	for _, arg := range args {
		words = append(words, Quote(arg))
	}
	return strings.Join(words, " ")
}

// Rehop returns a command of rehop, such as dlq send --all, for a virtual host and with arguments, under the rules of [Command]. Flags
// of the command come before the arguments. The command takes the virtual host for a URL that names none, and refuses a URL that
// names another one.
func Rehop(command, vhost string, args ...string) string {
	words := "rehop " + command
	if vhost = cmp.Or(vhost, "/"); vhost != "/" {
		words += " --vhost=" + Quote(vhost)
	}
	return Command(words, "", args...)
}

// Empty returns the words for queues that a person finds empty, with the command that shows it. The counts of a quorum queue are up
// to 5 s old, so one look is not enough.
func Empty(vhost, queues string) string {
	return fmt.Sprintf("%s: 0 for %s, twice, 10 s apart", Command("rabbitmqctl list_queues", vhost, "name", "messages"), queues)
}

// Consumed says how work queues become empty with their waits, so that they can be deleted.
func Consumed(vhost string, queues ...string) string {
	const because = "because what still waits becomes a dead letter"
	if len(queues) == 1 {
		return fmt.Sprintf("let its consumers empty it and its waits, %s (%s), and stop them", because, Empty(vhost, fmt.Sprintf("%q and each %q", queues[0], queues[0]+".wait.*")))
	}
	return fmt.Sprintf("let the consumers of %s empty them and their waits, %s (%s), and stop them", strings.Join(queues, ", "), because, Empty(vhost, "each of them and of their waits"))
}

// Quote returns an argument in the form that a shell of POSIX reads. A plain word stays as it is. An argument with a line break or
// another control character is written by printf: the command is one line then, and what prints it need not know of the break.
// One that ends in a line break stays as it is, because a shell would drop that break.
func Quote(arg string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+,=", r)
	}
	if arg != "" && strings.IndexFunc(arg, func(r rune) bool { return !plain(r) }) < 0 {
		return arg
	}
	quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	if strings.IndexFunc(arg, control) < 0 || strings.HasSuffix(arg, "\n") { // a shell drops a line break at the end of what printf writes
		return quoted(arg)
	}
	var format []byte
	for _, b := range []byte(strings.NewReplacer("%", "%%", `\`, `\\`, "\n", `\n`).Replace(arg)) {
		if control(rune(b)) || b == '!' { // which a shell with a history looks for
			format = fmt.Appendf(format, `\%03o`, b)
		} else {
			format = append(format, b)
		}
	}
	command := "printf "
	if strings.HasPrefix(arg, "-") {
		command += "-- "
	}
	return `"$(` + command + quoted(string(format)) + `)"`
}

// API returns the command that calls the management API for what rabbitmqctl cannot do: a method, a body, "" for none, and the
// parts of a path, of which an empty virtual host is "/". The user and the host are for the person to fill in; curl asks for the password.
func API(method, body string, path ...string) string {
	words := []string{"curl", "-u", "USER", "-X", method}
	if body != "" {
		words = append(words, "-H", Quote("content-type: application/json"), "-d", Quote(body))
	}
	return strings.Join(append(words, Quote(address(path))), " ")
}

func address(path []string) string {
	text := "http://HOST:15672/api"
	for _, part := range path {
		text += "/" + url.PathEscape(cmp.Or(part, "/"))
	}
	return text
}

// APIs is [API], without a body, for several last parts of a path at once: curl asks for the password once.
func APIs(method string, last []string, path ...string) string {
	if len(last) == 1 {
		return API(method, "", append(path, last...)...)
	}
	escaped := make([]string, len(last))
	for i, name := range last {
		escaped[i] = url.PathEscape(name) // braces and commas too
	}
	return strings.Join([]string{"curl", "-u", "USER", "-X", method, Quote(address(path) + "/{" + strings.Join(escaped, ",") + "}")}, " ")
}

// Unbind returns the command that takes a binding away, which leads from an exchange to a queue or an exchange, as kind says. Neither
// rabbitmqctl nor rehop has one.
func Unbind(vhost, source, kind, destination, key string, withArguments bool) string {
	path := []string{"bindings", vhost, "e", source, kind[:1], destination}
	if withArguments { // the broker makes a key of them
		return fmt.Sprintf("%s shows its properties_key, and %s deletes it (with each %% of that key as %%25)", API("GET", "", path...), API("DELETE", "", append(path, "PROPERTIES_KEY")...))
	}
	key = strings.ReplaceAll(url.QueryEscape(key), "~", "%7E") // as the broker writes it (3.10, 4.0 and 4.3)
	if strings.Trim(key, ".") == "" {                          // curl takes . and .. for steps in a path
		key = strings.ReplaceAll(key, ".", "%2E")
	}
	return API("DELETE", "", append(path, cmp.Or(key, "~"))...)
}
