package markdown

import (
	"fmt"
	"strings"
)

// A Command is one simple command of a shell block, such as a part of a pipeline.
type Command struct {
	Line int // from 1, in the block
	Env  []string
	Args []string
}

func (c Command) String() string {
	return strings.Join(append(append([]string{}, c.Env...), c.Args...), " ")
}

// Commands splits the text of a shell block into its simple commands. It knows quotes,
// comments, |, && and ;, lines that go on after a backslash, and variables that are set
// before a command. It refuses everything else that has a meaning to a shell.
func Commands(text string) ([]Command, error) {
	var commands []Command
	var words []string
	var word strings.Builder
	inWord, quote, comment, line, first := false, byte(0), false, 1, 1
	endWord := func() {
		if inWord {
			words = append(words, word.String())
			word.Reset()
			inWord = false
		}
	}
	endCommand := func() {
		endWord()
		if len(words) == 0 {
			return
		}
		c := Command{Line: first}
		for len(words) > 0 && assigns(words[0]) {
			c.Env, words = append(c.Env, words[0]), words[1:]
		}
		c.Args, words = words, nil
		commands = append(commands, c)
	}
	for i := 0; i < len(text); i++ {
		b := text[i]
		switch {
		case comment && b != '\n':
		case quote != 0 && b == quote:
			quote = 0
		case quote == '"' && strings.IndexByte("$`\\", b) >= 0, quote == 0 && strings.IndexByte("$`<>(){}*?!", b) >= 0:
			return nil, fmt.Errorf("line %d: %q has a meaning to the shell", line, b)
		case quote != 0:
			word.WriteByte(b)
		case b == '\'' || b == '"':
			quote, inWord = b, true
		case b == '\\' && strings.HasPrefix(text[i:], "\\\n"):
			i++
			line++
		case b == '#' && !inWord:
			comment = true
		case b == '\n' || b == ';' || b == '|' || b == '&':
			endCommand()
			comment = false
			if b == '\n' {
				line++
			}
		case b == ' ' || b == '\t':
			endWord()
		default:
			if len(words) == 0 && !inWord {
				first = line
			}
			word.WriteByte(b)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("line %d: a quote is not closed", line)
	}
	endCommand()
	return commands, nil
}

// assigns reports whether a word is of the form NAME=value.
func assigns(word string) bool {
	name, _, found := strings.Cut(word, "=")
	if !found || name == "" {
		return false
	}
	for i := range len(name) {
		if b := name[i]; b != '_' && (b < 'A' || b > 'Z') && (i == 0 || b < '0' || b > '9') {
			return false
		}
	}
	return true
}
