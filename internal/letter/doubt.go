package letter

import (
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/foreign"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/xdeath"
)

// Doubt says why the headers of a dead letter are not believed; empty if they may be. queue
// is the work queue that the letter names, "" for none.
//
// Everybody who may publish a message may write the headers by which a consumer or another
// framework says which queue failed. Only the broker writes x-death of a message that it
// moves: since 4.0 it leaves nothing of a client's, and before it adds its own entry to it. A
// consumer of ours writes a letter without x-death. So the letter can only have died since in
// queues behind its work queue: each entry has to be of one of its parts. A producer's letter
// names no queue, and has none. The levels of exact delays are in every message's way.
func Doubt(headers amqp.Table, queue string) string {
	if doubt := doubtThatIsKept(headers); doubt != "" {
		return doubt
	}
	deaths, found := headers[header.Death]
	if !found {
		return ""
	}
	f, known := foreign.Read(headers)
	h, _ := xdeath.Parse(headers)
	if list, isList := deaths.([]any); len(h.Deaths) == 0 && (!isList || len(list) > 0) {
		if !known && !header.IsLetter(headers) && !header.IsCopy(headers) && !header.HasOrigin(headers) {
			return "" // they name nothing
		}
		return "its x-death cannot be read, and everybody who may publish can write its other headers"
	}
	if !header.IsLetter(headers) && f.Queue == "" {
		return "" // it goes by x-death
	}
	for _, death := range h.Deaths {
		switch {
		case levels.Is(death.Queue), queue != "" && isPart(death.Queue, queue):
		case queue == "":
			return fmt.Sprintf("its headers name no queue, and x-death, which the broker writes, names %q", death.Queue)
		default:
			return fmt.Sprintf("its headers name queue %q, and x-death, which the broker writes, names %q", queue, death.Queue)
		}
	}
	return ""
}

// isPart reports whether a queue is the work queue, or belongs to it: one of its waits, its
// dead-letter queue, or that of the lanes whose lane it is.
func isPart(name, work string) bool {
	if lanes, is := strings.CutSuffix(name, ".dlq"); is {
		return work == lanes || strings.HasPrefix(work, lanes+".")
	}
	return name == work || strings.HasPrefix(name, work+".wait.")
}
