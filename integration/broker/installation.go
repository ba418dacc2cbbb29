package broker

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// debianBin is where Debian keeps the programs of RabbitMQ. What its package
// puts on the PATH instead goes to the user rabbitmq and the system's data.
const debianBin = "/usr/lib/rabbitmq/bin"

// installation is a RabbitMQ on this machine.
type installation struct {
	bin     string // the folder of rabbitmq-server, rabbitmqctl and so on
	version string // such as "3.10.8"
}

// findInstallation returns what is installed, and installs it if need be and
// possible. Its error is unavailable if there is nothing.
func findInstallation(ctx context.Context, progress io.Writer) (installation, error) {
	found, ok := installed()
	if ok {
		return found, nil
	}
	if !installable() {
		return installation{}, unavailable("rabbitmq-server, which is not installed, nor can be: that takes root and apt-get")
	}
	fmt.Fprintln(progress, "broker: installing Debian's rabbitmq-server, without its service; about half a minute")
	if err := install(ctx); err != nil {
		return installation{}, unavailable(fmt.Sprintf("rabbitmq-server, which apt-get cannot install: %v", err))
	}
	if found, ok = installed(); !ok {
		return installation{}, unavailable("rabbitmq-server, which is in an unknown place")
	}
	return found, nil
}

// installed looks for RabbitMQ. The version is in the name of a plugin, its
// core; to ask rabbitmqctl would take seconds and a running epmd.
func installed() (installation, bool) {
	candidates := []string{filepath.Join(debianBin, "rabbitmq-server")}
	if onPath, err := exec.LookPath("rabbitmq-server"); err == nil {
		candidates = append(candidates, onPath)
	}
	for _, program := range candidates {
		program, err := filepath.EvalSymlinks(program)
		if err != nil {
			continue
		}
		bin := filepath.Dir(program)
		core, _ := filepath.Glob(filepath.Join(bin, "../plugins/rabbit-[0-9]*")) // errs for bad patterns only
		if len(core) > 0 {
			version := strings.TrimPrefix(filepath.Base(core[0]), "rabbit-")
			return installation{bin: bin, version: strings.TrimSuffix(version, ".ez")}, true
		}
	}
	return installation{}, false
}

// program returns the path of one of RabbitMQ's own commands, and any other
// name as it is.
func (i installation) program(name string) string {
	if own := filepath.Join(i.bin, name); filepath.Base(name) == name {
		if _, err := os.Stat(own); err == nil {
			return own
		}
	}
	return name
}
