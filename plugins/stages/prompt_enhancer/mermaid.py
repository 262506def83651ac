"""The instructions for models about Mermaid diagrams: when to draw one, and the syntax by example."""

MERMAID = """\
# Diagrams

You may answer with Mermaid diagrams: a fenced code block with the language "mermaid".

Use a diagram when it says more than text: processes and decisions (flowchart), who talks to whom in which order \
(sequenceDiagram), types and their relations (classDiagram), states and transitions (stateDiagram-v2), data models \
(erDiagram), schedules (gantt). Do not use one for short answers, plain lists or single facts, nor when the user wants \
text only.

```mermaid
flowchart TD
    A[Request] --> B{Valid?}
    B -->|yes| C[Process]
    B -->|no| D["Refuse (400)"]
```

```mermaid
sequenceDiagram
    participant U as User
    participant S as Server
    U->>S: Request
    S-->>U: Response
```

One diagram per block. Give nodes short ids and readable labels; quote labels that hold brackets or other punctuation. \
Say in one sentence what the diagram shows."""
